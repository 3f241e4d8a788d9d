package ring

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The queue is a slice with a limit, also where positions wrap.
func TestSPSCAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.IntRange(1, 9).Draw(t, "n")
		q := NewSPSC[int](want)
		size := 1
		for size < want {
			size *= 2
		}
		if q.Cap() != size {
			t.Fatalf("Cap of a queue for %d is %d, want %d", want, q.Cap(), size)
		}
		start := rapid.SampledFrom([]uint64{0, 5, ^uint64(0) - 6}).Draw(t, "start")
		q.head.Store(start)
		q.tail.Store(start)
		q.headSeen, q.tailSeen = start, start
		var model []int
		next := 1
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if ok := q.Push(next); ok != (len(model) < size) {
					t.Fatalf("Push onto %d of %d: %v", len(model), size, ok)
				} else if ok {
					model = append(model, next)
					next++
				}
			case 1:
				vs := make([]int, rapid.IntRange(0, size+2).Draw(t, "many"))
				for i := range vs {
					vs[i] = next + i
				}
				n := q.PushN(vs)
				if n != min(len(vs), size-len(model)) {
					t.Fatalf("PushN of %d onto %d of %d took %d", len(vs), len(model), size, n)
				}
				model = append(model, vs[:n]...)
				next += n
			case 2:
				v, ok := q.Pop()
				if ok != (len(model) > 0) || (ok && v != model[0]) {
					t.Fatalf("Pop is %d, %v, want the first of %v", v, ok, model)
				}
				model = model[min(1, len(model)):]
			case 3:
				dst := make([]int, rapid.IntRange(0, size+2).Draw(t, "many"))
				n := q.PopN(dst)
				if n != min(len(dst), len(model)) || !slices.Equal(dst[:n], model[:n]) {
					t.Fatalf("PopN of %d gave %v, want %v", len(dst), dst[:n], model)
				}
				model = model[n:]
			}
			if q.Len() != len(model) || q.Empty() != (len(model) == 0) {
				t.Fatalf("Len %d, Empty %v, want %d", q.Len(), q.Empty(), len(model))
			}
			held := 0
			for _, v := range q.buf {
				if v != 0 {
					held++
				}
			}
			if held != len(model) {
				t.Fatalf("%d places are not clear, want %d: a popped element is kept alive", held, len(model))
			}
		}
	})
}

func TestSPSCConcurrently(t *testing.T) {
	const total = 100000
	q := NewSPSC[*int](64)
	go func() {
		batch := make([]*int, 0, 7)
		for i := 0; i < total; {
			batch = batch[:0]
			for k := 0; k < cap(batch) && i+k < total; k++ {
				v := i + k
				batch = append(batch, &v)
			}
			n := 0
			if i%2 == 0 {
				n = q.PushN(batch)
			} else if q.Push(batch[0]) {
				n = 1
			}
			if n == 0 {
				runtime.Gosched()
			}
			i += n
		}
	}()
	dst := make([]*int, 5)
	for want := 0; want < total; {
		n := 0
		if want%3 == 0 {
			n = q.PopN(dst)
		} else if v, ok := q.Pop(); ok {
			dst[0], n = v, 1
		}
		if n == 0 {
			runtime.Gosched()
		}
		for _, v := range dst[:n] {
			if *v != want {
				t.Fatalf("got %d, want %d", *v, want)
			}
			want++
		}
	}
	if !q.Empty() {
		t.Error("elements are left over")
	}
}
