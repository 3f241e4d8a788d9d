package rpma

import "github.com/verbena-rdma/verbena/runtime"

// Send starts to send n bytes of src as a message. A nil src, with numbers of 0, is a message of no bytes. The peer's
// device puts it into a receive; until there is one, it waits. In all other respects Send is like
// Read.
//
// Implements: rpma_send.
func (c *Conn) Send(src *MR, off, n int, flags Flags, word uint64) error {
	o, err := sendOp("rpma_send", src, off, n, flags)
	if err != nil {
		return err
	}
	return c.start("rpma_send", &o, flags, word)
}

// SendWithImm is Send that also gives the peer a number, in host order.
//
// Implements: rpma_send_with_imm.
func (c *Conn) SendWithImm(src *MR, off, n int, flags Flags, imm uint32, word uint64) error {
	o, err := sendOp("rpma_send_with_imm", src, off, n, flags)
	if err != nil {
		return err
	}
	o = o.Imm(imm)
	return c.start("rpma_send_with_imm", &o, flags, word)
}

func sendOp(op string, src *MR, off, n int, flags Flags) (o runtime.Op, err error) {
	if err = flags.check(op); err != nil {
		return o, err
	}
	local, err := piece(op, src, off, n)
	return runtime.SendOp(local), err
}

// Recv posts a receive of the n bytes of dst from off on. A nil dst, with numbers of 0, is a receive of no bytes, which
// a WRITE with immediate data may consume, too. The device owns the bytes until the completion, which has the
// given word.
//
// Receives are a set: a message may take any of them, and only the word tells which. (Today it takes
// the oldest. No program may rely on that.)
//
// Errors: ErrInvalid for bytes that are not in the memory, memory without RecvBuf, and after Close;
// ErrProvider with ENOMEM if ConnConfig.RQSize receives are posted and not taken from the CQ, with EINVAL
// if the connection has an SRQ, and with ENOTCONN if it has ended.
//
// Implements: rpma_recv.
func (c *Conn) Recv(dst *MR, off, n int, word uint64) error {
	return c.recv("rpma_recv", dst, off, n, word)
}
