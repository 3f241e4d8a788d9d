package runtime

import (
	"bytes"
	"fmt"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// Who says a hello, and who must:
//
//	          our side says         of the peer's side is understood
//	managed   hello                 hello of a managed connection
//	raw       hello                 hello of a raw connection; anything else as it is
//	bare      the caller's data     anything as it is
//
// A raw connection needs nothing of what a hello says: the other side may be any
// program of librdmacm's.

// What goes before the caller's bytes.
const (
	helloSize = proto.HelloSize
	frameSize = proto.FrameSize // in credit mode
)

// ownHello is the private data of our side.
func (c *Conn) ownHello() []byte {
	if c.opts.Bare {
		return c.opts.PrivateData
	}
	h := proto.Hello{Raw: c.opts.Raw, User: c.opts.PrivateData}
	if !c.opts.Raw {
		h.Credits, h.RecvSize = uint32(c.opts.RecvCredits), uint32(c.opts.MessageSize)
	}
	return proto.EncodeHello(h)
}

// checkPrivate checks the length of private data that goes with what, which
// carries most bytes.
func (o Options) checkPrivate(what string, most int) error {
	if !o.Bare {
		most -= helloSize
	}
	if len(o.PrivateData) > most {
		return fmt.Errorf("%w: Options.PrivateData has %d bytes, %s carries %d", ErrConfig, len(o.PrivateData), what, most)
	}
	return nil
}

// readHello is what the peer says, if a connection with these options can live
// with it.
func readHello(private []byte, o Options) (proto.Hello, error) {
	if o.Bare || o.Raw && !bytes.HasPrefix(private, []byte(proto.Magic)) {
		return proto.Hello{Raw: true, User: foreignData(private)}, nil
	}
	h, bad := proto.ParseHello(private)
	switch {
	case bad != nil:
		return h, (*ProtocolError)(bad)
	case h.Raw != o.Raw:
		return h, fmt.Errorf("%w: one side is raw, the other managed", ErrMode)
	case !h.Raw && (h.Credits == 0 || h.Credits > maxCredits || h.RecvSize < minMessageSize):
		return h, fmt.Errorf("%w: it offers %d receives of %d bytes", ErrPeerProtocol, h.Credits, h.RecvSize)
	}
	return h, nil
}

// foreignData is private data that no runtime wrote, with the padding that the
// connection manager may have added. Only zeros are nothing.
func foreignData(private []byte) []byte {
	if len(bytes.TrimLeft(private, "\x00")) == 0 {
		return nil
	}
	return bytes.Clone(private[:min(len(private), verbs.MaxPrivateAccept)])
}
