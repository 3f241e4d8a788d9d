package rdmacm

import (
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// PostRecv posts a receive for one message. The device owns buf, which must be in mr, until the receive
// completes. Receives are a queue: the first message goes to the receive posted first. If the queue
// pair has a shared receive queue, the receive goes there. The word userContext comes back as WRID of
// the completion. A datagram is preceded by 40 bytes (verbs.GRHLen). When PostRecv returns, the device
// has the receive; it waits for a pass of the reactor if another goroutine runs one.
//
// Errors: ErrNoQP, ErrRange, ErrQueueFull, verbs.ErrInvalid.
//
// Implements: rdma_post_recv.
func (id *ID) PostRecv(userContext uint64, buf []byte, mr *MR) error {
	if id == nil {
		return errNil("rdma_post_recv")
	}
	const op = "rdma_post_recv"
	if mr == nil {
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: a receive needs a memory region", verbs.ErrInvalid))
	}
	sge, err := mr.sge(buf)
	if err != nil {
		return failure(op, id, syscall.EINVAL, err)
	}
	one := [1]verbs.SGE{sge}
	return id.recv(op, userContext, one[:])
}

// PostRecvV is PostRecv with a scatter-gather list, which PostRecvV copies.
//
// Implements: rdma_post_recvv.
func (id *ID) PostRecvV(userContext uint64, sgl []verbs.SGE) error {
	if id == nil {
		return errNil("rdma_post_recvv")
	}
	return id.recv("rdma_post_recvv", userContext, sgl)
}

func (id *ID) recv(op string, userContext uint64, sgl []verbs.SGE) error {
	dev, err := id.submitRecv(userContext, sgl)
	if err == nil {
		err = dev.posted()
	}
	return named(op, id, err)
}

// PostSend posts a message. Memory that is registered is named by mr, and belongs to the device until
// the request completes. With verbs.SendInline, or if mr is nil, the bytes are copied before PostSend
// returns; mr is then not used. The flags are verbs.SendFence, SendSignaled, SendSolicited and
// SendInline. A request without SIGNALED has no completion, unless it fails or QPInitAttr.SQSigAll is
// set. The word userContext comes back as WRID of the completion. PostSend may wait for a
// pass of the reactor if the queue pair has failed, and otherwise does not block.
//
// The C function has no copy without INLINE: there, memory that is not registered is an error.
//
// Errors: ErrNoQP, ErrNotConnected, ErrRange, ErrQueueFull, verbs.ErrInvalid.
//
// Implements: rdma_post_send.
func (id *ID) PostSend(userContext uint64, buf []byte, mr *MR, flags verbs.SendFlags) error {
	if id == nil {
		return errNil("rdma_post_send")
	}
	return id.message("rdma_post_send", &reactor.Send{Opcode: verbs.WRSend, Tag: userContext}, buf, mr, flags)
}

// PostSendV is PostSend with a scatter-gather list of registered memory, which PostSendV copies.
//
// Implements: rdma_post_sendv.
func (id *ID) PostSendV(userContext uint64, sgl []verbs.SGE, flags verbs.SendFlags) error {
	if id == nil {
		return errNil("rdma_post_sendv")
	}
	return id.gathered("rdma_post_sendv", &reactor.Send{Opcode: verbs.WRSend, Tag: userContext}, sgl, flags)
}

// PostWrite writes buf to the peer's memory at address remote, of the region with the key rkey. In all
// other respects it is like PostSend.
//
// Implements: rdma_post_write.
func (id *ID) PostWrite(userContext uint64, buf []byte, mr *MR, flags verbs.SendFlags, remote uint64, rkey uint32) error {
	if id == nil {
		return errNil("rdma_post_write")
	}
	const op = "rdma_post_write"
	if mr == nil || flags&verbs.SendInline != 0 {
		return id.message(op, &reactor.Send{Opcode: verbs.WRRDMAWrite, Tag: userContext, Remote: remote, RKey: rkey}, buf, mr, flags)
	}
	return id.transfer(op, verbs.WRRDMAWrite, userContext, buf, mr, flags, remote, rkey)
}

// PostWriteV is PostWrite with a scatter-gather list.
//
// Implements: rdma_post_writev.
func (id *ID) PostWriteV(userContext uint64, sgl []verbs.SGE, flags verbs.SendFlags, remote uint64, rkey uint32) error {
	if id == nil {
		return errNil("rdma_post_writev")
	}
	return id.gathered("rdma_post_writev", &reactor.Send{Opcode: verbs.WRRDMAWrite, Tag: userContext, Remote: remote, RKey: rkey}, sgl, flags)
}

// PostRead reads the peer's memory at address remote, of the region with the key rkey, into buf, which
// must be in mr. In all other respects it is like PostSend.
//
// Implements: rdma_post_read.
func (id *ID) PostRead(userContext uint64, buf []byte, mr *MR, flags verbs.SendFlags, remote uint64, rkey uint32) error {
	if id == nil {
		return errNil("rdma_post_read")
	}
	const op = "rdma_post_read"
	if mr == nil {
		return failure(op, id, syscall.EINVAL, fmt.Errorf("%w: a READ needs a memory region", verbs.ErrInvalid))
	}
	return id.transfer(op, verbs.WRRDMARead, userContext, buf, mr, flags, remote, rkey)
}

// PostReadV is PostRead with a scatter-gather list.
//
// Implements: rdma_post_readv.
func (id *ID) PostReadV(userContext uint64, sgl []verbs.SGE, flags verbs.SendFlags, remote uint64, rkey uint32) error {
	if id == nil {
		return errNil("rdma_post_readv")
	}
	return id.gathered("rdma_post_readv", &reactor.Send{Opcode: verbs.WRRDMARead, Tag: userContext, Remote: remote, RKey: rkey}, sgl, flags)
}

// PostUDSend sends a datagram to the queue pair remoteQPN behind the address handle ah, which must live
// until the request completes. The queue key is verbs.UDPQKey. In all other respects it is like
// PostSend.
//
// Implements: rdma_post_ud_send.
func (id *ID) PostUDSend(userContext uint64, buf []byte, mr *MR, flags verbs.SendFlags, ah verbs.AH, remoteQPN uint32) error {
	if id == nil {
		return errNil("rdma_post_ud_send")
	}
	s := reactor.Send{Opcode: verbs.WRSend, Tag: userContext, To: reactor.Dest{AH: ah, QPNum: remoteQPN, QKey: verbs.UDPQKey}}
	return id.message("rdma_post_ud_send", &s, buf, mr, flags)
}
