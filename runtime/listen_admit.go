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

// MaxRefusalData is the largest size of Refusal.Data in bytes. On a bare listener the limit is
// verbs.MaxPrivateReject instead.
const MaxRefusalData = proto.RejectMaxData

// Request is the argument of Options.Admit: it describes a peer that wants to connect.
type Request struct {
	// Peer is the address of the dialing end, and Local that of the listening end. Peer is not
	// authenticated: on an unprotected network a dialing program can forge its address.
	Peer, Local netip.AddrPort
	// PrivateData is the peer's Options.PrivateData. Options.Admit may keep the slice.
	PrivateData []byte
}

// Refusal is an error of Options.Admit that carries data to the peer.
type Refusal struct {
	// Text explains the refusal. The peer gets at most 100 bytes of Text, in RejectError.Text.
	Text string
	// Data is for the peer's program, which gets the bytes in RejectError.Data. Data may have at
	// most MaxRefusalData bytes. Longer Data is not sent at all, and the text that the peer gets
	// reports the length. The runtime copies Data when Admit returns.
	//
	// A bare listener sends Data without a header, and sends no text. Its limit for Data is
	// verbs.MaxPrivateReject bytes.
	Data []byte
}

// Error returns the text, after "connection refused: ".
func (r *Refusal) Error() string { return "connection refused: " + r.Text }

// notAdmitted is the error for a request that Options.Admit has refused. Its bytes are the private
// data of the rejection.
type notAdmitted []byte

func (notAdmitted) Error() string { return "runtime: refused by Options.Admit" }

// admit calls Options.Admit for a request. If Admit refuses the request, admit returns a
// notAdmitted. Admit may block, so the caller must not hold the turn.
func (o *Options) admit(ctx context.Context, q Request) error {
	if o.Admit == nil {
		return nil
	}
	if err := o.Admit(ctx, q); err != nil {
		return o.refusal(err)
	}
	return nil
}

// refusal returns the private data of the rejection for an error that Options.Admit has returned.
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
		rej.Text, rej.Data = fmt.Sprintf("the listener's Refusal.Data has %d bytes, at most %d fit: %s", n, most, rej.Text), nil
	}
	if o.Bare {
		return bytes.Clone(rej.Data)
	}
	return rej.Encode()
}

// errAdmitEnded is the text that the peer gets if Options.Admit panicked or called runtime.Goexit.
var errAdmitEnded = errors.New("the listener's program failed")
