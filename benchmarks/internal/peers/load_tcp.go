package peers

import (
	"encoding/binary"
	"io"
	"net"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// tcpPings is a goroutine that writes a message over TCP and reads the answer.
type tcpPings struct {
	net.Conn
	text []byte
	took suite.Samples
}

func newTCPPings(to string, h shape) (suite.Load, error) {
	c, err := net.Dial("tcp", to)
	return &tcpPings{Conn: c, text: make([]byte, h.size)}, err
}

func (l *tcpPings) Round(n int, found rounds.Values) error {
	return halves(&l.took, n, found, func() error {
		if _, err := l.Write(l.text); err != nil {
			return err
		}
		_, err := io.ReadFull(l.Conn, l.text)
		return err
	})
}

// tcpStream is a goroutine that writes over TCP, and waits at the end until the server has read all.
type tcpStream struct {
	net.Conn
	text []byte
}

func newTCPStream(to string, h shape) (suite.Load, error) {
	c, err := net.Dial("tcp", to)
	return &tcpStream{c, make([]byte, h.size)}, err
}

func (l *tcpStream) Round(n int, _ rounds.Values) error {
	var total [bed.Word]byte
	binary.BigEndian.PutUint64(total[:], uint64(n)*uint64(len(l.text)))
	if _, err := l.Write(total[:]); err != nil {
		return err
	}
	for range n {
		if _, err := l.Write(l.text); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(l.Conn, total[:1])
	return err
}
