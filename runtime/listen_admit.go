package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// MaxRefusalData is the largest size of Refusal.Data in bytes; on a bare listener it is
// verbs.MaxPrivateReject.
const MaxRefusalData = proto.RejectMaxData

// Request is a request for a connection, as Options.Admit gets it.
type Request struct {
	// Peer and Local are the addresses of the two sides. Nothing has proven Peer yet: on a network
	// without protection a peer can forge it.
	Peer, Local netip.AddrPort
	// PrivateData is the peer's Options.PrivateData. The callee may keep it.
	PrivateData []byte
}

// Refusal is an error of Options.Admit that carries data to the peer.
type Refusal struct {
	// Text explains the refusal; the peer gets at most 100 bytes of it, in RejectError.Text.
	Text string
	// Data is for the peer's program, which finds it in RejectError.Data: at most MaxRefusalData bytes.
	// If it is longer, none of it is sent, and the text says so. It is copied when Admit returns.
	//
	// The peer of a bare listener is no runtime: it gets Data unchanged, at most verbs.MaxPrivateReject
	// bytes, and no text.
	Data []byte
}

// Error returns the text.
func (r *Refusal) Error() string { return "connection refused: " + r.Text }

// notAdmitted means that Options.Admit has refused a request. It is the private data of the rejection.
type notAdmitted []byte

func (notAdmitted) Error() string { return "runtime: refused by Options.Admit" }

// admit asks Options.Admit about a request. It may block and needs no turn. The error is a notAdmitted.
func (o *Options) admit(ctx context.Context, q Request) error {
	if o.Admit == nil {
		return nil
	}
	if err := o.Admit(ctx, q); err != nil {
		return o.refusal(err)
	}
	return nil
}

// refusal returns the rejection for an error of Options.Admit.
func (o *Options) refusal(err error) notAdmitted {
	rej := proto.Reject{Code: proto.RejectRefused}
	if r, ok := errors.AsType[*Refusal](err); !ok {
		rej.Text = err.Error()
	} else if r != nil {
		rej.Text, rej.Data = r.Text, r.Data
	}
	most := MaxRefusalData
	if o.Bare {
		most = verbs.MaxPrivateReject
	}
	if n := len(rej.Data); n > most {
		rej.Text, rej.Data = fmt.Sprintf("its Refusal.Data has %d bytes, a rejection carries %d: %s", n, most, rej.Text), nil
	}
	if o.Bare {
		return bytes.Clone(rej.Data)
	}
	return rej.Encode()
}

// errAdmitEnded is the refusal of a request whose Admit panicked or called runtime.Goexit.
var errAdmitEnded = errors.New("the listener's program failed")
