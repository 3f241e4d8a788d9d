package main

import (
	"sync"
	"testing"
)

const (
	crowd      = 16 // goroutines on one connection
	crowdDepth = 8  // outstanding operations of each
)

// BenchmarkCrowd measures many goroutines on one connection, each with some outstanding writes of
// 8 bytes, beside as many goroutines that pass as much to one goroutine through a channel and
// wait for it.
func BenchmarkCrowd(b *testing.B) {
	p := newPair(b, 8)
	jobs := make(chan *sync.WaitGroup, crowd*crowdDepth)
	served := make(chan struct{})
	go func() {
		for j := range jobs {
			j.Done()
		}
		close(served)
	}()
	b.Cleanup(func() { close(jobs); <-served })
	var waves [crowd]wave
	before := p.here.Stats()
	beside(b, "chan", 0, func(n int) {
		each(n, func(i, n int) { waves[i].run(b, p, n, crowdDepth) })
	}, func(n int) {
		each(n, func(_, n int) {
			var j sync.WaitGroup
			for ; n > 0; n -= crowdDepth {
				for range min(n, crowdDepth) {
					j.Add(1)
					jobs <- &j
				}
				j.Wait()
			}
		})
	})
	reportDoorbells(b, before, p.here.Stats())
}

// each divides n operations among the crowd.
func each(n int, run func(i, n int)) {
	var all sync.WaitGroup
	for i := range crowd {
		share := n / crowd
		if i < n%crowd {
			share++
		}
		all.Go(func() { run(i, share) })
	}
	all.Wait()
}
