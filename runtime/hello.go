package runtime

import (
	"bytes"
	"fmt"

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

// ownHello is the private data of our side.
func (c *Conn) ownHello() []byte {
	if c.opts.Bare {
		return c.opts.PrivateData
	}
	h := hello{raw: c.opts.Raw, user: c.opts.PrivateData}
	if !c.opts.Raw {
		h.credits, h.recvSize = uint32(c.opts.RecvCredits), uint32(c.opts.MessageSize)
	}
	return encodeHello(h)
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
func readHello(private []byte, o Options) (hello, error) {
	if o.Bare || o.Raw && !bytes.HasPrefix(private, []byte(protoMagic)) {
		return hello{raw: true, user: foreignData(private)}, nil
	}
	h, err := parseHello(private)
	switch {
	case err != nil:
		return h, err
	case h.raw != o.Raw:
		return h, fmt.Errorf("%w: one side is raw, the other managed", ErrMode)
	case !h.raw && (h.credits == 0 || h.credits > maxCredits || h.recvSize < minMessageSize):
		return h, fmt.Errorf("%w: it offers %d receives of %d bytes", ErrPeerProtocol, h.credits, h.recvSize)
	}
	return h, nil
}

// foreignData is private data that no runtime wrote, with the padding that the
// connection manager may have added. Only zeros are nothing.
func foreignData(private []byte) []byte {
	if nonZero(private) < 0 {
		return nil
	}
	return bytes.Clone(private[:min(len(private), verbs.MaxPrivateAccept)])
}
