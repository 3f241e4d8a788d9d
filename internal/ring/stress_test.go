//go:build !verbena_model

package ring

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stressTime returns how long each stress test runs: VERBENA_STRESS_TIME, which `make stress` sets
// to a minute. VERBENA_STRESS_SEED replays the mix of pauses, but not the machine's schedule.
func stressTime(t *testing.T) (lasting time.Duration, seed uint64) {
	lasting, seed = 50*time.Millisecond, uint64(time.Now().UnixNano())
	var err error
	if s := os.Getenv("VERBENA_STRESS_TIME"); s != "" {
		if lasting, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("VERBENA_STRESS_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("VERBENA_STRESS_SEED=%d VERBENA_STRESS_TIME=%v", seed, lasting)
	return lasting, seed
}

// Rule: slots from a free list, taken, handed over by a submission stack and given back one by one
// or together, have one owner at a time and come in their producer's order; and the consumer, which
// looks only when a push says that the stack was empty, gets all.
func TestStressSlotsAndStack(t *testing.T) {
	take := func(free *FreeList, rng *rand.Rand, room []uint32) []uint32 {
		if rng.IntN(4) > 0 {
			i, ok := free.Get()
			room[0] = i
			return room[:ifTrue(ok)]
		}
		return room[:free.GetN(room[:rng.IntN(len(room))+1])]
	}
	lasting, seed := stressTime(t)
	const n, producers = 5, 6
	links := NewLinks(n)
	free, stack := NewFreeList(links), NewIndexStack(links)
	var slots [n]struct{ from, seq int } // plain: the race detector checks the ownership
	bell, ended := make(chan struct{}, n), make(chan struct{})
	var stop atomic.Bool
	var pushed atomic.Int64
	var done sync.WaitGroup
	for p := range producers {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		done.Go(func() {
			var room [3]uint32
			for seq := 0; !stop.Load(); {
				is := take(free, rng, room[:])
				if len(is) == 0 || rng.IntN(8) == 0 {
					runtime.Gosched()
				}
				if rng.IntN(16) == 0 && len(is) > 0 {
					free.Put(is[0])
					is = is[1:]
				}
				if len(is) == 0 {
					continue
				}
				for k, i := range is {
					slots[i].from, slots[i].seq = p, seq
					seq++
					if k > 0 {
						stack.Over(i, is[k-1])
					}
				}
				pushed.Add(int64(len(is)))
				if stack.PushAll(is[0], is[len(is)-1]) {
					bell <- struct{}{}
				}
			}
		})
	}
	time.AfterFunc(lasting, func() { stop.Store(true); done.Wait(); close(ended) })
	rng := rand.New(rand.NewPCG(seed, producers))
	var next [producers]int
	took := int64(0)
	for over := false; !over || took < pushed.Load(); {
		select {
		case <-bell:
		case <-ended:
			over, ended = true, nil
			continue
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d came, and nobody is told", took, pushed.Load())
		}
		var have []uint32
		i, _, k := stack.TakeAll()
		for range k {
			s := &slots[i]
			if s.seq != next[s.from] {
				t.Fatalf("producer %d: %d, want %d", s.from, s.seq, next[s.from])
			}
			next[s.from]++
			have = append(have, i)
			i = links.Next(i)
		}
		took += int64(k)
		if rng.IntN(2) == 0 {
			free.PutN(have)
			continue
		}
		for _, i := range have {
			free.Put(i)
		}
	}
	if free.Len() != n {
		t.Errorf("%d of %d slots are home", free.Len(), n)
	}
	t.Logf("%d handed over", took)
}

func ifTrue(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Rule: an object with work, listed once for many pieces of it, is taken with all of it, and no
// object is left with work and not listed.
func TestStressListed(t *testing.T) {
	lasting, seed := stressTime(t)
	const things, producers = 3, 6
	var ready Inbox[busy, *busy]
	all := make([]busy, things)
	bell, ended := make(chan struct{}, things*producers), make(chan struct{})
	var stop atomic.Bool
	var done sync.WaitGroup
	var added atomic.Int64
	for p := range producers {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		done.Go(func() {
			for !stop.Load() {
				b := &all[rng.IntN(things)]
				added.Add(1)
				b.work.Add(1)
				if b.listed.Enter() && ready.Push(b) {
					bell <- struct{}{}
				}
				if rng.IntN(4) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	time.AfterFunc(lasting, func() { stop.Store(true); done.Wait(); close(ended) })
	took := int64(0)
	for over := false; !over || took < added.Load(); {
		select {
		case <-bell:
		case <-ended:
			over, ended = true, nil
			continue
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of %d came, and nothing is listed", took, added.Load())
		}
		for b := ready.TakeAll(); b != nil; {
			next := b.hook.Unlink()
			b.listed.Leave()
			took += b.work.Swap(0)
			b = next
		}
	}
	t.Logf("%d pieces of work", took)
}

type busy struct {
	hook   Hook[busy]
	listed Listed
	work   atomic.Int64 // added by producers, taken by the consumer
}

func (b *busy) InboxHook() *Hook[busy] { return &b.hook }
