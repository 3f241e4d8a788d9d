package runtime

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// slowDomain makes address handles when it is let.
type slowDomain struct {
	verbs.PD
	entered, let chan struct{}
}

func (d slowDomain) CreateAH(a *verbs.AHAttr) (verbs.AH, error) {
	d.entered <- struct{}{}
	<-d.let
	return d.PD.CreateAH(a)
}

// Rule: a source whose hardware address the kernel looks for, in vain perhaps, keeps
// nobody but who wants to reply to it: no turn waits, the end of the datagrams goes
// on, and what is made after it is closed.
func TestReplyToAnAbsentSourceKeepsNoTurn(t *testing.T) { onBeds(t, absentSource) }

func absentSource(t *testing.T, d bed) {
	a, b := d.packets(t)
	to := mustResolve(t, a, b.Addr().String())
	a.sendBytes(t, to, []byte("x"))
	k := b.mustRecv(t)
	slow := slowDomain{b.rt.pd, make(chan struct{}), make(chan struct{})}
	b.rt.pd = slow
	got := make(chan error, 1)
	go func() { _, err := b.PeerOf(k); got <- err }()
	<-slow.entered
	b.setCause(ErrConnClosed)
	if err := b.sh.r.Do(testContext(t), func() {
		if busy, err := b.closePeers(); busy || err != nil { // as the end does, on the turn
			t.Errorf("closing the peers: busy %t, %v", busy, err)
		}
	}); err != nil {
		t.Errorf("a turn waited for the address: %v", err)
	}
	close(slow.let)
	if err := <-got; !errors.Is(err, ErrConnClosed) {
		t.Errorf("the reply's peer came with %v, want %v", err, ErrConnClosed)
	}
	if n := b.rt.dev.Objects().AH; n != 0 {
		t.Errorf("%d address handles are left", n)
	}
	if err := k.Release(); err != nil {
		t.Error(err)
	}
	b.rt.pd = slow.PD
}
