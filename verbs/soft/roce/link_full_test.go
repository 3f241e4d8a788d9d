package roce

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: a send buffer without room delays the other packets by maxFull at most; what it cannot hold then is lost and
// counted. Once it has room the link waits for it again.
func TestAFullSendBufferDelaysOthersOnce(t *testing.T) {
	h := &wire.Header{Opcode: wire.RCSendOnly}
	r := newRig(t)
	r.sock.room = 1
	for range 3 {
		r.send(h, nil, []byte("12345678"))
	}
	if s := r.link.Stats(); len(r.sock.sent) != 1 || s.Unsent != 0 {
		t.Errorf("at once: %d sent, %d lost; want 1 and 0", len(r.sock.sent), s.Unsent)
	}
	r.fab.AdvanceTo(sendAgain)
	r.steps()
	if s := r.link.Stats(); s.Unsent != 0 {
		t.Errorf("after %v: %d lost, want 0", sendAgain, s.Unsent)
	}
	r.fab.AdvanceTo(maxFull)
	r.steps()
	if s := r.link.Stats(); len(r.sock.sent) != 1 || s.Unsent != 2 {
		t.Errorf("after %v without room: %d sent, %d lost; want 1 and 2", maxFull, len(r.sock.sent), s.Unsent)
	}
	r.send(h, nil, []byte("12345678"))
	if s := r.link.Stats(); s.Unsent != 3 {
		t.Errorf("later: %d lost, want 3, at once", s.Unsent)
	}
	r.sock.room = 1
	r.send(h, nil, []byte("12345678"))
	r.send(h, nil, []byte("12345678"))
	if s := r.link.Stats(); len(r.sock.sent) != 2 || s.Unsent != 3 {
		t.Errorf("with room for one: %d sent, %d lost; want 2 and 3: the other waits", len(r.sock.sent), s.Unsent)
	}
}
