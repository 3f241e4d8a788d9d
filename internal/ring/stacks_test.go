package ring

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func takeAll(t interface{ Fatalf(string, ...any) }, s *IndexStack) []uint32 {
	i, last, n := s.TakeAll()
	var got []uint32
	for ; n > 0; n-- {
		got = append(got, i)
		i = s.next.Next(i)
	}
	if len(got) > 0 && got[len(got)-1] != last {
		t.Fatalf("took %v, of which the last is said to be %d", got, last)
	}
	return got
}

// TakeAll returns the indices in the order of pushing, and only the first push into an empty stack
// asks the caller to wake the consumer.
func TestIndexStackAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 12
		s := NewIndexStack(NewLinks(n))
		var model []uint32
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if i := rapid.Uint32Range(0, n+2).Draw(t, "what"); i < n {
				if slices.Contains(model, i) {
					continue
				}
				if was := s.Push(i); was != (len(model) == 0) {
					t.Fatalf("Push(%d) on %v says wasEmpty=%v", i, model, was)
				}
				model = append(model, i)
			} else {
				if got := takeAll(t, s); !slices.Equal(got, model) {
					t.Fatalf("took %v, want %v", got, model)
				}
				model = nil
			}
			if s.Empty() != (len(model) == 0) {
				t.Fatalf("Empty is %v with %v on the stack", s.Empty(), model)
			}
		}
	})
}

// Producers take slots from a free list, write to them and push them; the
// consumer reads each exactly once, in each producer's order, and puts it back.
// It parks unless there is work, so a lost wasEmpty hangs the test.
func TestIndexStackAndFreeListConcurrently(t *testing.T) {
	const slots, producers, each = 16, 4, 20000
	links := NewLinks(slots)
	s, f := NewIndexStack(links), NewFreeList(links)
	type slot struct{ producer, seq int }
	table := make([]slot, slots) // plain: the race detector checks the ownership
	bell := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for seq := 0; seq < each; {
				i, ok := f.Get()
				if !ok {
					runtime.Gosched()
					continue
				}
				table[i] = slot{p, seq}
				seq++
				if s.Push(i) {
					bell <- struct{}{}
				}
			}
		})
	}
	var next [producers]int
	back := make([]uint32, 0, slots)
	for total := 0; total < producers*each; {
		<-bell
		back = back[:0]
		i, _, n := s.TakeAll()
		for range n {
			got := table[i]
			if got.seq != next[got.producer] {
				t.Fatalf("slot %d has %+v, want sequence %d", i, got, next[got.producer])
			}
			next[got.producer]++
			table[i] = slot{-1, -1}
			back = append(back, i)
			i = links.Next(i)
			total++
		}
		if len(back)%2 == 0 {
			f.PutN(back)
		} else {
			for _, i := range back {
				f.Put(i)
			}
		}
	}
	wg.Wait()
	if f.Len() != slots || !s.Empty() {
		t.Errorf("%d of %d slots are free, stack empty: %v", f.Len(), slots, s.Empty())
	}
}

type letter struct {
	hook      Hook[letter]
	from, seq int
}

func (l *letter) InboxHook() *Hook[letter] { return &l.hook }

func TestInboxAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in Inbox[letter, *letter]
		var model []*letter
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") > 0 {
				l := &letter{}
				if was := in.Push(l); was != (len(model) == 0) {
					t.Fatalf("Push on %d says wasEmpty=%v", len(model), was)
				}
				model = append(model, l)
			} else {
				k := 0
				for p := in.TakeAll(); p != nil; k++ {
					if k >= len(model) || p != model[k] {
						t.Fatalf("object %d of %d is not the one pushed then", k, len(model))
					}
					seen := p.InboxHook().Next()
					next := p.InboxHook().Unlink()
					if next != seen || p.InboxHook().Next() != nil {
						t.Fatal("Unlink must give Next and clear it")
					}
					p = next
				}
				if k != len(model) {
					t.Fatalf("took %d of %d", k, len(model))
				}
				model = nil
			}
			if in.Empty() != (len(model) == 0) {
				t.Fatalf("Empty is %v with %d queued", in.Empty(), len(model))
			}
		}
	})
}

// Every object arrives once, in its producer's order, and the consumer, which parks unless a push
// said wasEmpty, is always woken.
func TestInboxConcurrently(t *testing.T) {
	const producers, each = 4, 20000
	var in Inbox[letter, *letter]
	bell := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for seq := range each {
				if in.Push(&letter{from: p, seq: seq}) {
					bell <- struct{}{}
				}
			}
		})
	}
	var next [producers]int
	for total := 0; total < producers*each; {
		<-bell
		for p := in.TakeAll(); p != nil; total++ {
			if p.seq != next[p.from] {
				t.Fatalf("producer %d: got %d, want %d", p.from, p.seq, next[p.from])
			}
			next[p.from]++
			p = p.InboxHook().Unlink()
		}
	}
	wg.Wait()
	if !in.Empty() {
		t.Error("objects are left over")
	}
}

// Rule: Pop and PopN return the indices in the order of pushing, and Empty says whether there are any.
func TestIndexQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "room")
		q := NewIndexQueue(n)
		var model []uint32
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if len(model) < n {
					i := rapid.Uint32Range(0, none-1).Draw(t, "index")
					q.Push(i)
					model = append(model, i)
				}
			case 1:
				i, ok := q.Pop()
				if ok != (len(model) > 0) || ok && i != model[0] {
					t.Fatalf("Pop on %v returned %d, %v", model, i, ok)
				}
				model = model[min(1, len(model)):]
			case 2:
				is := make([]uint32, rapid.IntRange(0, n+1).Draw(t, "most"))
				got := q.PopN(is)
				if want := min(len(is), len(model)); got != want || !slices.Equal(is[:got], model[:got]) {
					t.Fatalf("PopN of %d on %v returned %v", len(is), model, is[:got])
				}
				model = model[got:]
			}
			if q.Empty() != (len(model) == 0) {
				t.Fatalf("Empty is %v with %v in the queue", q.Empty(), model)
			}
		}
	})
}

// Rule: each index that is pushed is popped by one consumer, and no consumer gets a later push before an
// earlier one.
func TestIndexQueueConcurrently(t *testing.T) {
	const slots, consumers, pushes = 16, 3, 60000
	q, free := NewIndexQueue(slots), NewFreeList(NewLinks(slots))
	seq := make([]int, slots) // plain: the race detector checks the ownership
	var popped atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; n <= pushes; {
			i, ok := free.Get()
			if !ok {
				runtime.Gosched()
				continue
			}
			seq[i] = n
			n++
			q.Push(i)
		}
	})
	for c := range consumers {
		wg.Go(func() {
			last, is := 0, make([]uint32, 1+3*c)
			for popped.Load() < pushes {
				n := q.PopN(is)
				if n == 0 {
					runtime.Gosched()
				}
				for _, i := range is[:n] {
					if seq[i] <= last {
						t.Errorf("push %d was popped after push %d", seq[i], last)
					}
					last = seq[i]
					free.Put(i)
				}
				popped.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if !q.Empty() || popped.Load() != pushes {
		t.Errorf("%d of %d pushes were popped", popped.Load(), pushes)
	}
}
