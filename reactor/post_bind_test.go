package reactor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// bindsAgain is a device with DeviceAttr.BindsAgain. It records the length of each list.
type bindsAgain struct {
	verbs.Context
	lists []int
}

func (d *bindsAgain) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := d.Context.QueryDevice()
	a.BindsAgain = true
	return a, err
}

func (d *bindsAgain) Execute(t *verbs.IOBatch) error {
	for _, g := range t.Sends {
		d.lists = append(d.lists, g.Count)
	}
	return d.Context.Execute(t)
}

// Rule: on a device with BindsAgain, the reactor posts a binding only when no send is outstanding. All sends keep their
// order. (The bug: a late acknowledgement on Soft-RoCE broke a connection with large messages.)
func TestBindingsWaitUntilNothingIsOutstanding(t *testing.T) {
	onlySoft(t, "the test counts lists")
	var d *bindsAgain
	a, b := pairOf(t, reactor.Config{Stepped: true}, reactor.QueueConfig{SendDepth: 16, RecvDepth: 16, Windows: true}, func(c verbs.Context) verbs.Context {
		d = &bindsAgain{Context: c}
		return d
	})
	mw := must.Get(a.pd.AllocMW(verbs.MWType1))(t)
	mr := must.Get(a.pd.RegMR(a.arena.Addr(), endMemory, a.arena.Addr(), endAccess|verbs.AccessMWBind))(t)
	var ended []int
	submit := func(s *reactor.Send, p reactor.Payload) {
		t.Helper()
		must.Get(a.q.Submit(bounded(t), s, &p, reactor.NonBlock))(t)
	}
	at := 0
	note := func() reactor.Sink {
		n := at
		at++
		return called(func(_ reactor.Completion, err error) {
			try(t, err)
			ended = append(ended, n)
		})
	}
	key := mw.RKey()
	bind := func(to reactor.Sink) {
		key = verbs.IncRKey(key)
		submit(&reactor.Send{Opcode: verbs.WRBindMW, Sink: to, Bind: &reactor.Bind{Window: mw, Region: mr, RKey: key, Addr: a.arena.Addr(), Length: 64, Access: verbs.AccessRemoteWrite}}, reactor.Payload{})
	}
	write := func() {
		s, p := a.write(b)
		s.Sink = note()
		submit(s, p)
	}
	write()
	write()
	bind(note())
	write()
	bind(note())
	bind(note())
	write()
	steps := func() {
		for range 100 {
			b.r.Step()
			a.r.Step()
		}
	}
	steps()
	if want := []int{2, 2, 1, 2}; !slices.Equal(d.lists, want) {
		t.Errorf("WRITE, WRITE, BIND, WRITE, BIND, BIND, WRITE were posted in lists of %v, want %v", d.lists, want)
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(ended, want) {
		t.Errorf("they ended in the order %v", ended)
	}

	// The first message waits for a receive: the binding is not posted.
	d.lists, ended, at = nil, nil, 0
	_, sge := a.bytes(0, 8)
	submit(&reactor.Send{Opcode: verbs.WRSend, Sink: note()}, reactor.Payload{SGEs: []verbs.SGE{sge}})
	bind(note())
	steps()
	if fmt.Sprint(d.lists, ended) != "[1] []" {
		t.Errorf("behind a message that waits, lists of %v were posted, and %v have ended", d.lists, ended)
	}
	into := inbox(make(chan reactor.Completion, 1))
	_, there := b.bytes(0, 8)
	must.Do(t, b.q.PostRecv(&reactor.Recv{Sink: into}, []verbs.SGE{there}, reactor.NonBlock))
	for until := bounded(t); len(ended) < at && until.Err() == nil; { // the device sends the message again after a while
		steps()
	}
	if fmt.Sprint(d.lists, ended) != "[1 1] [0 1]" {
		t.Errorf("after the message has arrived, lists of %v were posted, and %v have ended", d.lists, ended)
	}

	// The release of the queue ends the waiting binding, too.
	d.lists, at = nil, 0
	ends := 0
	end := called(func(_ reactor.Completion, err error) {
		if ends++; err == nil {
			t.Error("a request of a released queue succeeded")
		}
	})
	submit(&reactor.Send{Opcode: verbs.WRSend, Sink: end}, reactor.Payload{SGEs: []verbs.SGE{sge}})
	bind(end)
	steps()
	a.release(t, reactor.ErrClosed)
	steps()
	if fmt.Sprint(d.lists, ends) != "[1] 2" {
		t.Errorf("before the queue was released lists of %v were posted, and then %d requests ended, want 2", d.lists, ends)
	}
	must.Do(t, mw.Close())
	must.Do(t, mr.Close())
	a.closeRest(t)
	b.close(t)
}
