package peers

import (
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
)

// serveTCPEcho answers each message of one connection with the same.
func serveTCPEcho(h shape) (*service, error) {
	return serveTCP(func(c net.Conn) error {
		text := make([]byte, h.size)
		for {
			if _, err := io.ReadFull(c, text); err != nil {
				return err
			}
			if _, err := c.Write(text); err != nil {
				return err
			}
		}
	})
}

// serveTCPSink reads as many bytes as it is told, with reads of up to the size of a message, and
// answers with one byte; again and again.
func serveTCPSink(h shape) (*service, error) {
	return serveTCP(func(c net.Conn) error {
		text := make([]byte, h.size)
		var total [bed.Word]byte
		for {
			if _, err := io.ReadFull(c, total[:]); err != nil {
				return err
			}
			for left := binary.BigEndian.Uint64(total[:]); left > 0; {
				n, err := c.Read(text[:min(left, uint64(len(text)))])
				if err != nil {
					return errors.Join(err, io.ErrUnexpectedEOF)
				}
				left -= uint64(n)
			}
			if _, err := c.Write(total[:1]); err != nil {
				return err
			}
		}
	})
}

// serveTCP serves one connection, until the client ends it.
func serveTCP(serve func(net.Conn) error) (*service, error) {
	ln, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		return nil, err
	}
	s := &service{port: ln.Addr().(*net.TCPAddr).Port, close: ln.Close}
	go func() {
		c, err := ln.Accept()
		if err != nil {
			s.fault.report(err)
			return
		}
		if err := serve(c); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			s.fault.report(err)
		}
		s.fault.report(c.Close())
	}()
	return s, nil
}
