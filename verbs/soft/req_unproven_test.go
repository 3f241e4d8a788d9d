package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// unprovenWorld is lossyWorld; a has got b's address from a program, and nothing has come from there.
func unprovenWorld(t *testing.T, retries uint8) *world {
	w := lossyWorld(t, retries)
	w.a.ctx.dev.exclusive(func() { w.a.qp.req.window = newWindow(true, false, w.a.qp.mtu) })
	return w
}

// Rule: firstTries packets at most are sent to an address from which nothing comes, and the request fails when it
// would fail anyway.
func TestThreePacketsAreSentToAnAddressThatIsNotProven(t *testing.T) {
	for name, c := range map[string]struct {
		bytes, requests int
		retries         uint8
		want            uint64
	}{
		"a long request":              {64 << 10, 1, 7, firstTries},
		"short requests":              {8, 16, 7, firstTries},
		"as many retries as packets":  {8, 1, firstTries - 1, firstTries},
		"fewer retries":               {64 << 10, 1, 1, 2},
		"no retry":                    {64 << 10, 1, 0, 1},
		"a request longer than READs": {4 << 20, 1, 7, firstTries},
	} {
		t.Run(name, func(t *testing.T) {
			w := unprovenWorld(t, c.retries)
			w.fab.SetAll(fabric.Link{Down: true})
			for i := range c.requests - 1 {
				w.write(uint64(100+i), c.bytes)
			}
			began := w.fab.Now()
			w.write(1, c.bytes)
			w.settle()
			want := uint64(c.retries+1) * uint64(verbs.AckTimeout(longTimeout))
			wcs := w.a.poll(w.a.scq)
			if len(wcs) != c.requests || wcs[0].Status != verbs.WCRetryExcErr || uint64(w.fab.Now()-began) < want {
				t.Fatalf("after %v: %+v, want RETRY_EXC_ERR after %d ns", w.fab.Now()-began, wcs, want)
			}
			if n := w.a.sent(); n != c.want {
				t.Errorf("%d packets were sent, want %d", n, c.want)
			}
		})
	}
}

// Rule: the first packet from the peer, an answer or a request of its own, opens the window; and a lost first packet
// is sent again.
func TestTheFirstPacketFromThePeerOpensTheWindow(t *testing.T) {
	for name, hear := range map[string]func(w *world){
		"an acknowledgement": func(w *world) { w.took(1, 8, verbs.WCSuccess) },
		"an acknowledgement of the third packet": func(w *world) {
			w.fab.SetLink(w.a.gid, w.b.gid, fabric.Link{Delay: oneWay, Rules: []fabric.Rule{{From: 1, To: 2, Drop: true}}})
			w.took(1, 8, verbs.WCSuccess)
		},
		"a request of the peer": func(w *world) {
			wr := w.b.send(1, verbs.WRRDMAWrite, verbs.SendSignaled, w.b.sge(0, 8))
			wr.SetRDMA(w.a.at(0), w.a.mr.RKey())
			w.b.mustPost(wr)
			w.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := unprovenWorld(t, 7)
			w.fab.SetAll(fabric.Link{Delay: oneWay})
			hear(w)
			if n := w.a.qp.req.window.psns; n < firstWindow {
				t.Errorf("the window is %d, want %d", n, firstWindow)
			}
			if got := w.took(2, firstWindow<<10, verbs.WCSuccess); got > 3*oneWay {
				t.Errorf("a request of as many packets as the window took %v, want a round trip", got)
			}
		})
	}
}

// Rule: a peer whose queue pair gets ready within the time of the retries is reached: the last packet is sent with the
// last retry. (A message between two programs that had exchanged their addresses was lost if one was 0.3 s late.)
func TestAPeerThatGetsReadyLateIsReached(t *testing.T) {
	const retries = 7
	w := unprovenWorld(t, retries)
	w.fab.SetAll(fabric.Link{Down: true})
	w.write(1, 8)
	ready := retries*verbs.AckTimeout(longTimeout) - verbs.AckTimeout(longTimeout)/2 // before the last retry
	for ready += w.fab.Now(); ; {
		w.step()
		at, ok := w.fab.NextEvent()
		if !ok || at >= ready {
			break
		}
		w.fab.AdvanceTo(at)
	}
	w.fab.SetAll(fabric.Link{Delay: oneWay})
	w.settle()
	w.a.ok(w.a.poll(w.a.scq), 1)
}
