package outage

import (
	"encoding/binary"
	"errors"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// windowSize is the size of a window in bytes.
const windowSize = slot

// open binds a window to local memory, lets the peer write through it, checks the data, and
// invalidates the window, in each round.
func (s *session) open() bool {
	region, err := s.p.rt.NewRegion(windowSize, verbs.AccessLocalWrite|verbs.AccessMWBind)
	if err != nil {
		return s.fault("a region", err)
	}
	defer func() {
		// The window ends with the connection, and the region can only be closed after the window.
		// The method hold closes the connection.
		s.p.all.Go(func() {
			<-s.c.Gone()
			if err := region.Close(); err != nil {
				s.fault("closing a region", err)
			}
		})
	}()
	w, err := s.c.NewWindow()
	if errors.Is(err, verbs.ErrNotSupported) {
		return true
	}
	if err != nil {
		return s.fault("a window", err)
	}
	n := uint64(0)
	for ; s.round(n); n++ {
		clear(region.Bytes())
		var to verbena.Remote
		if _, err := s.do(KindBind, func() (f verbena.Future, err error) {
			to, f, err = w.Bind(bg, region, 0, windowSize, verbs.AccessRemoteWrite)
			return f, err
		}); err != nil {
			return false
		}
		note, err := to.AppendBinary(binary.LittleEndian.AppendUint64(nil, n))
		if err != nil {
			return s.fault("a window's descriptor", err)
		}
		if s.sendBytes(note) != nil {
			return false
		}
		m, err := s.recv(KindEcho)
		if err != nil {
			return false
		}
		if s.release(m) != nil {
			return false
		}
		if err := check(region.Bytes(), s.seed, n); err != nil {
			s.p.ledger.wrong("written through a window: %v", err)
		}
		if _, err := s.do(KindInvalidate, func() (verbena.Future, error) { return w.Invalidate(bg) }); err != nil {
			return false
		}
	}
	return s.all(n)
}

// writeWindows writes through the windows that the peer binds, and answers after each write.
func (s *session) writeWindows() {
	b, err := s.p.rt.Alloc(windowSize)
	if err != nil {
		s.fault("a buffer", err)
		return
	}
	defer s.give(b)
	for n := uint64(0); ; n++ {
		m, err := s.recv(KindRecv)
		if err != nil {
			return
		}
		var to verbena.Remote
		if len(m.Data) < messageHead || binary.LittleEndian.Uint64(m.Data) != n {
			s.p.ledger.wrong("note %d of a window came as %x", n, m.Data[:min(len(m.Data), messageHead)])
		} else if err := to.UnmarshalBinary(m.Data[messageHead:]); err != nil {
			s.p.ledger.wrong("note %d of a window: %v", n, err)
		}
		if s.release(m) != nil {
			return
		}
		fill(b.Bytes(), s.seed, n)
		if _, err := s.do(KindWrite, func() (verbena.Future, error) { return s.c.Write(bg, b.Slice(), to) }); err != nil {
			return
		}
		if s.sendBytes(binary.LittleEndian.AppendUint64(nil, n)) != nil {
			return
		}
	}
}
