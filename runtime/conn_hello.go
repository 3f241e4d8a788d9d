package runtime

import (
	"bytes"
	"fmt"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// The private data of a connection request or acceptance depends on the mode of the connection. A
// hello (proto.Hello) describes the mode and the receives of the end that sends the hello, and
// contains the data of that end's user (Options.PrivateData).
//
//	mode      sent                  accepted from the peer
//	managed   hello                 hello of a managed connection
//	raw       hello                 hello of a raw connection, or data without a hello
//	bare      the user's data       any data
//
// The peer of a raw connection may be any librdmacm program, so it need not send a hello. The user
// gets data without a hello from foreignData.

// The sizes of the headers that precede the user's data, in bytes.
const (
	helloSize = proto.HelloSize // in private data
	frameSize = proto.FrameSize // in a message of a managed connection
)

// ownHello returns the private data that this side sends in its request or acceptance.
func (c *Conn) ownHello() []byte {
	if c.opts.Bare {
		return c.ownData
	}
	h := proto.Hello{Raw: c.opts.Raw, User: c.ownData}
	if !c.opts.Raw {
		h.Credits, h.Most, h.RecvSize, h.LargeBits = uint16(c.window.Load()), uint16(c.mostCredits()), uint32(c.opts.MessageSize), c.largeBits()
	}
	return proto.EncodeHello(h)
}

// mostCredits is the largest window of the connection.
func (c *Conn) mostCredits() int {
	if c.pool != nil {
		return poolWindow
	}
	return c.opts.RecvCredits
}

// checkPrivate returns an error if a message of the handshake cannot carry o.PrivateData. The first
// argument describes the message in the error text, for example "a request". The second argument is
// the largest size of the message's private data, in bytes.
func (o Options) checkPrivate(what string, most int) error {
	if !o.Bare {
		most -= helloSize
	}
	if len(o.PrivateData) > most {
		return fmt.Errorf("%w: Options.PrivateData has %d bytes, %s carries %d", ErrConfig, len(o.PrivateData), what, most)
	}
	return nil
}

// readHello parses the private data of the peer. It returns an error if the data is malformed, or
// if a connection with the options o cannot work with the peer's connection.
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
	case !h.Raw && (h.Credits == 0 || h.Credits > h.Most || h.Most > maxCredits || h.RecvSize < minMessageSize):
		return h, fmt.Errorf("%w: it offers %d of %d receives of %d bytes", ErrPeerProtocol, h.Credits, h.Most, h.RecvSize)
	}
	return h, nil
}

// foreignData returns a copy of private data that has no hello. The copy has at most
// verbs.MaxPrivateAccept bytes, and may end with padding of the connection manager. If all bytes
// are zero, foreignData returns nil.
func foreignData(private []byte) []byte {
	if len(bytes.TrimLeft(private, "\x00")) == 0 {
		return nil
	}
	return bytes.Clone(private[:min(len(private), verbs.MaxPrivateAccept)])
}
