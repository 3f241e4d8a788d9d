package main

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// depth is the number of outstanding work requests where they are pipelined.
const depth = 128

// The stages of an operation.
const (
	submit = iota // Submit: check, credit, slot, promise, queue
	flush         // a pass that posts the list
	poll          // passes that poll, and settling
	await         // taking the results, which are there
	stages
)

// stepped is a reactor on the null device, driven by the benchmark itself.
type stepped struct {
	dev *null
	r   *reactor.Reactor
	q   *reactor.Queue
}

func newStepped(b *testing.B) *stepped {
	s := &stepped{dev: &null{Context: must.Get(soft.Default().Open("soft0"))(b)}}
	b.Cleanup(func() { must.Do(b, s.dev.Context.Close()) })
	pd := must.Get(s.dev.AllocPD())(b)
	b.Cleanup(func() { must.Do(b, pd.Close()) })
	s.r = must.Get(reactor.New(reactor.Config{Context: s.dev, Stepped: true}))(b)
	b.Cleanup(func() { must.Do(b, s.r.Close(context.Background())) })
	s.q = must.Get(s.r.Prepare(reactor.QueueConfig{PD: pd, SendDepth: depth, RecvDepth: -1}))(b)
	must.Do(b, s.q.Admit())
	init := s.q.InitAttr()
	qp := must.Get(pd.CreateQP(init))(b)
	s.q.Bind(qp, init.Cap)
	b.Cleanup(func() {
		must.Do(b, qp.Close())
		must.Do(b, s.q.Release(reactor.ErrClosed))
	})
	return s
}

// stage runs b.N operations, depth at a time, through all stages, and reports the time of one
// stage per operation; for stages the total.
func stage(b *testing.B, which int) {
	b.ReportAllocs()
	s := newStepped(b)
	arena := must.Get(mem.Map(4096, mem.Options{}))(b)
	b.Cleanup(func() { must.Do(b, arena.Unmap()) })
	req := reactor.Send{Opcode: verbs.WRRDMAWrite}
	data := reactor.Payload{SGEs: []verbs.SGE{{Addr: arena.Addr(), Length: 8}}}
	fs := make([]reactor.Future, depth)
	var took [stages]time.Duration
	round := func(n int) {
		s.dev.hold = true
		t0 := time.Now()
		for i := range n {
			f := must.Get(s.q.Submit(context.Background(), &req, &data, reactor.NonBlock))(b)
			fs[i] = f
		}
		t1 := time.Now()
		s.r.Step()
		t2 := time.Now()
		s.dev.hold = false
		for !fs[n-1].Settled() {
			s.r.Step()
		}
		t3 := time.Now()
		for i := range n {
			_, err, ok := fs[i].Poll()
			if must.Do(b, err); !ok {
				b.Fatalf("operation %d of %d has not settled", i, n)
			}
		}
		t4 := time.Now()
		for k, d := range [stages]time.Duration{t1.Sub(t0), t2.Sub(t1), t3.Sub(t2), t4.Sub(t3)} {
			took[k] += d
		}
	}
	for range 10 {
		round(depth) // pools fill
	}
	took = [stages]time.Duration{}
	before := s.r.Stats()
	b.ResetTimer()
	for left := b.N; left > 0; left -= depth {
		round(min(left, depth))
	}
	b.StopTimer()
	reportDoorbells(b, before, s.r.Stats())
	var sum time.Duration
	for k, d := range took {
		if k == which || which == stages {
			sum += d
		}
	}
	b.ReportMetric(float64(sum.Nanoseconds())/float64(b.N), "ns/op")
}

// BenchmarkSubmit measures Submit of an 8-byte write, to the reactor's queue.
func BenchmarkSubmit(b *testing.B) { stage(b, submit) }

// BenchmarkFlush measures gathering, linking and posting, on a device that does nothing.
func BenchmarkFlush(b *testing.B) { stage(b, flush) }

// BenchmarkPoll measures polling, retiring and settling.
func BenchmarkPoll(b *testing.B) { stage(b, poll) }

// BenchmarkAwait measures taking the result of a settled future.
func BenchmarkAwait(b *testing.B) { stage(b, await) }

// BenchmarkTogether measures all four stages.
func BenchmarkTogether(b *testing.B) { stage(b, stages) }
