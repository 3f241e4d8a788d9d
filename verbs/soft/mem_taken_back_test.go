package soft

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// returns has a send a message that invalidates the key, and returns the completion of b's receive.
func (w *world) returns(key uint32) verbs.WC {
	w.t.Helper()
	fill(w.a.data()[:100], 5)
	w.b.recv(9, w.b.sge(4096, 100))
	wr := w.a.send(3, verbs.WRSendWithInv, verbs.SendSignaled, w.a.sge(0, 100))
	wr.SetInvalidate(key)
	w.a.mustPost(wr)
	w.a.ok(w.a.want(w.a.scq, 1), 3)
	got := w.b.poll(w.b.rcq)
	if len(got) != 1 || got[0].WRID != 9 {
		w.t.Fatalf("receives completed: %+v", got)
	}
	return got[0]
}

// Rule: if the program has taken back a window and the peer then gives it back by SEND_WITH_INV, the
// message is delivered, the queue pair goes on, and a later binding of the window stays. (The bug: the
// receive failed with REM_INV_REQ_ERR, and the connection ended, although the sender's request had
// succeeded.)
func TestPeerReturnsAWindowTakenBack(t *testing.T) {
	localInv := func(w *world, mw *memoryWindow) {
		w.b.mustPost(w.b.invWR(2, mw.RKey()))
		w.b.ok(w.b.want(w.b.scq, 1), 2)
	}
	for name, take := range map[string]func(w *world, mw *memoryWindow){
		"LOCAL_INV": localInv,
		"LOCAL_INV and bound again": func(w *world, mw *memoryWindow) {
			localInv(w, mw)
			w.b.bound(mw, 0, 100, remoteAll)
		},
		"Close": func(_ *world, mw *memoryWindow) { must.Do(t, mw.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := windowWorld(t, options{})
			mw := w.b.newMW(verbs.MWType2)
			closing(t, mw)
			w.b.bound(mw, 8192, 100, remoteAll)
			key := mw.RKey()
			take(w, mw)
			bound := mw.mr != nil
			if wc := w.returns(key); wc.Status != verbs.WCSuccess || wc.Flags != verbs.WCWithInv || wc.ImmData != key || wc.ByteLen != 100 {
				t.Fatalf("the receive of the SEND_WITH_INV completed with %+v, want success and key %#x", wc, key)
			}
			if string(w.b.data()[4096:4196]) != string(w.a.data()[:100]) {
				t.Error("the message of the SEND_WITH_INV did not arrive")
			}
			if s := w.b.state(); s != verbs.QPSRTS || (mw.mr != nil) != bound {
				t.Errorf("after the SEND_WITH_INV: state %v, window bound %v; want RTS, %v", s, mw.mr != nil, bound)
			}
		})
	}
}

// Rule: if the peer has given back a window by SEND_WITH_INV, the program's LOCAL_INV of its key
// succeeds. But a second SEND_WITH_INV of the key fails the receiver: the program has not taken it back.
func TestTakingBackAWindowThatThePeerReturned(t *testing.T) {
	w := windowWorld(t, options{})
	mw := w.b.newMW(verbs.MWType2)
	closing(t, mw)
	w.b.bound(mw, 0, 100, remoteAll)
	if wc := w.returns(mw.RKey()); wc.Status != verbs.WCSuccess {
		t.Fatalf("the receive of the SEND_WITH_INV completed with %v", wc.Status)
	}
	w.b.mustPost(w.b.invWR(2, mw.RKey()))
	w.b.ok(w.b.want(w.b.scq, 1), 2)
	if wc := w.returns(mw.RKey()); wc.Status != verbs.WCRemInvReqErr || w.b.state() != verbs.QPSErr {
		t.Errorf("the receive of the second SEND_WITH_INV completed with %v in state %v, want %v in ERR", wc.Status, w.b.state(), verbs.WCRemInvReqErr)
	}
	w.b.events()
}

// Rule: a queue pair remembers the last maxTakenBack keys that were taken back, and no older one. A new
// connection of the queue pair knows none of them.
func TestKeysTakenBackAreBounded(t *testing.T) {
	var r keyRing
	for key := range uint32(3 * maxTakenBack / 2) {
		r.add(key)
	}
	if len(r.keys) != maxTakenBack {
		t.Fatalf("%d keys are remembered, want %d", len(r.keys), maxTakenBack)
	}
	for _, key := range r.keys {
		if key < maxTakenBack/2 {
			t.Errorf("key %d is remembered in place of a later one", key)
		}
	}
	q := responder{takenBack: &r}
	q.begin(&verbs.QPAttr{})
	if q.takenBack != nil {
		t.Errorf("a new connection remembers %d keys of the one before, want none", len(q.takenBack.keys))
	}
}
