//go:build verbena_model

package ring

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/model"
	"github.com/verbena-rdma/verbena/internal/model/mutate"
)

// Rule: each step is needed. Without it some order of steps breaks a rule.
func TestModelMutants(t *testing.T) {
	box := func(name string) *mutate.Mutant {
		return mutate.New("inbox: "+name, "letter|nobody is told", func() model.World { return boxWorld(2, 2) })
	}
	stack := func(name string, asOne bool) *mutate.Mutant {
		return mutate.New("stack: "+name, "pushed|twice|nobody is told", func() model.World { return stackWorld(2, 2, asOne) })
	}
	list := func(name string) *mutate.Mutant {
		return mutate.New("free list: "+name, "slot", func() model.World { return listWorld(3, 2, 2) })
	}
	table := func(name string) *mutate.Mutant {
		return mutate.New("table: "+name, "out of range", func() model.World { return tableWorld(2, 2, 1) })
	}
	queue := func(name string) *mutate.Mutant {
		return mutate.New("index queue: "+name, "pop|popped", func() model.World { return queueWorld(2, 2, 3) })
	}
	mutate.Test(t,
		mutate.New("queue: who is overtaken is told that it is full", "full", func() model.World { return mpscWorld(2, 1, true) }).
			In("mpsc.go", "case q.tail.Load() == t:", "case MUTANT || q.tail.Load() == t:"),

		queue("the index is published before its entry").
			In("indexqueue.go", "q.entries[t&q.mask].store(i)\n\tmodel.", "if MUTANT {\nq.tail.Store(t + 1)\nmodel.Yield(\"\")\n}\nq.entries[t&q.mask].store(i)\n\tmodel."),
		queue("the head is stored, not swapped if still the same").
			In("indexqueue.go", "q.head.CompareAndSwap(h, h+1)", "(MUTANT && q.head.Swap(h+1) <= h+1 || q.head.CompareAndSwap(h, h+1))"),
		queue("who takes several does not see that the head has moved").
			In("indexqueue.go", "q.head.CompareAndSwap(h, h+n)", "(MUTANT && q.head.Swap(h+n) <= h+n || q.head.CompareAndSwap(h, h+n))"),

		box("the head is stored, not swapped if still the same").
			In("inbox.go", "q.head.CompareAndSwap(h, (*T)(p))", "MUTANT && q.head.Swap((*T)(p)) != (*T)(p) || q.head.CompareAndSwap(h, (*T)(p))"),
		box("the link is written after the object is published").
			In("inbox.go", "hook.next = h\n\t\tmodel.", "if MUTANT {\nh = q.head.Swap((*T)(p))\nmodel.Yield(\"\")\nhook.next = h\nreturn h == nil\n}\nhook.next = h\nmodel."),
		box("the head is loaded, then emptied").
			In("inbox.go", "for p := q.head.Swap(nil); p != nil; {",
				"all := q.head.Load()\nif MUTANT {\nmodel.Yield(\"\")\nq.head.Store(nil)\n} else {\nall = q.head.Swap(nil)\n}\nfor p := all; p != nil; {"),
		box("the order is not turned round").
			In("inbox.go", "var first *T", "if MUTANT {\nreturn q.head.Swap(nil)\n}\nvar first *T"),

		stack("the head is stored, not swapped if still the same", false).
			In("indexstack.go", "s.head.CompareAndSwap(h, last)", "(MUTANT && s.head.Swap(last) != last || s.head.CompareAndSwap(h, last))"),
		stack("the link is written after the index is published", false).
			In("indexstack.go", "s.next[first].store(h)\n\t\tmodel.", "if MUTANT {\nh = s.head.Swap(last)\nmodel.Yield(\"\")\ns.next[first].store(h)\nreturn h == none\n}\ns.next[first].store(h)\n\t\tmodel."),
		stack("the head is loaded, then emptied", false).
			In("indexstack.go", "i := s.head.Swap(none)", "i := s.head.Load()\nif MUTANT {\nmodel.Yield(\"\")\ns.head.Store(none)\n} else {\ni = s.head.Swap(none)\n}"),
		stack("the consumer takes one, and nobody tells it of the rest", false).
			In("indexstack.go", "first, last = none, i\n", "if MUTANT && i != none {\ns.head.Store(s.next[i].load())\nreturn i, i, 1\n}\nfirst, last = none, i\n"),
		stack("the order is not turned round", false).
			In("indexstack.go", "first, last = none, i\n", "if MUTANT {\nfor j := i; j != none; j = s.next[j].load() {\nlast = j\nn++\n}\nreturn i, last, n\n}\nfirst, last = none, i\n"),
		stack("a list is put there by its oldest", true).
			In("indexstack.go", "s.head.CompareAndSwap(h, last)", "(MUTANT && s.head.CompareAndSwap(h, first) || !MUTANT && s.head.CompareAndSwap(h, last))"),
		stack("a list forgets what it stands on", true).
			In("indexstack.go", "s.next[first].store(h)\n\t\tmodel.", "if MUTANT {\ns.next[first].store(none)\nmodel.Yield(\"\")\ns.head.Swap(last)\nreturn h == none\n}\ns.next[first].store(h)\n\t\tmodel."),
		stack("wasEmpty is what it was at first", false).
			In("indexstack.go", "last uint32) (wasEmpty bool) {\n", "last uint32) (wasEmpty bool) {\nif MUTANT {\nmodel.Yield(\"\")\n}\nbefore := s.head.Load()\n").
			In("indexstack.go", "model.Fresh(\"stack.push\")", "if MUTANT {\nmodel.Yield(\"\")\n} else {\nmodel.Fresh(\"stack.push\")\n}").
			In("indexstack.go", "\t\t\treturn h == none", "return MUTANT && before == none || !MUTANT && h == none"),

		table("who takes several trusts the link of a slot that has left").
			In("freelist.go", "n < len(is) && int(i) < len(f.next)", "n < len(is) && (!MUTANT && int(i) < len(f.next) || MUTANT && i != none)"),

		list("no tag").
			In("freelist.go", "const tagOne =", "var tagOne uint64 =").
			In("freelist.go", "checkCount(\"free list\", len(links))", "checkCount(\"free list\", len(links))\nif tagOne = none + 1; MUTANT {\ntagOne = 0\n}"),
		list("the tag is not moved on by who gets and puts back").
			In("freelist.go", "func (f *FreeList) Get() (uint32, bool) {", "func (f *FreeList) Get() (uint32, bool) {\ntagOne := tagOne\nif MUTANT {\ntagOne = 0\n}").
			In("freelist.go", "func (f *FreeList) Put(i uint32) {", "func (f *FreeList) Put(i uint32) {\ntagOne := tagOne\nif MUTANT {\ntagOne = 0\n}"),
		list("the head is stored, not swapped if still the same").
			In("freelist.go", "|uint64(i)) {\n\t\t\treturn\n", "|uint64(i)) || MUTANT && f.head.Swap((h&^none+tagOne)|uint64(i)) > 0 {\n\t\t\treturn\n"),
		// Applied to Put as the mutant before changed it.
		list("the link is written after the slot is published").
			In("freelist.go", "f.next[i].store(uint32(h & none))\n", "if !MUTANT {\nf.next[i].store(uint32(h & none))\n}\n").
			In("freelist.go", "> 0 {\n\t\t\treturn\n", "> 0 {\nif MUTANT {\nmodel.Yield(\"\")\nf.next[i].store(uint32(h & none))\n}\nreturn\n"),
		list("the link below the last of many is not written again").
			In("freelist.go", "last := is[len(is)-1]", "last, linked := is[len(is)-1], false").
			In("freelist.go", "model.Fresh(\"putn\")", "if MUTANT && linked {\nmodel.Fresh(\"putn.again\")\n} else {\nmodel.Fresh(\"putn\")\n}").
			In("freelist.go", "f.next[last].store(uint32(h & none))", "if !MUTANT || !linked {\nf.next[last].store(uint32(h & none))\n}\nlinked = true"),
		list("who takes several does not see that the list has changed").
			In("freelist.go", "if f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {\n\t\t\treturn n",
				"if now := f.head.Load(); MUTANT && now&none == h&none {\nh = now\n}\nif f.head.CompareAndSwap(h, (h&^none+tagOne)|uint64(i)) {\nreturn n"),
	)
}
