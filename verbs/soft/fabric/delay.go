package fabric

import "container/heap"

// delayLine holds the delayed packets. Any sender pushes to incoming; the rest belongs to the
// pacemaker in real time and to the goroutine that calls Step in virtual time. Every packet in it
// has its own copy of the payload and no holder.
type delayLine struct {
	incoming mailbox
	waiting  packetHeap
	seq      uint64
}

// collect moves the incoming packets into the heap, in order.
func (d *delayLine) collect() {
	for k := d.incoming.takeAll(); k != nil; {
		next := k.next
		k.next = nil
		d.seq++
		k.seq = d.seq
		heap.Push(&d.waiting, k)
		k = next
	}
}

// due removes and returns the earliest packet if it is due, else nil.
func (d *delayLine) due(now int64) *Packet {
	if len(d.waiting) == 0 || d.waiting[0].due > now {
		return nil
	}
	return heap.Pop(&d.waiting).(*Packet)
}

// next returns the due time of the earliest packet, or never.
func (d *delayLine) next() int64 {
	if len(d.waiting) == 0 {
		return never
	}
	return d.waiting[0].due
}

// dropAll drops all packets. It returns the units to their links, because a link with a script
// outlives its ports. There is no waiter: no port is attached.
func (d *delayLine) dropAll() {
	d.collect()
	for _, k := range d.waiting {
		k.route.release(k.weight())
		k.drop()
	}
	d.waiting = nil
}

// packetHeap orders by due time, then by order of sending.
type packetHeap []*Packet

func (h packetHeap) Len() int { return len(h) }

func (h packetHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq < h[j].seq
}

func (h packetHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *packetHeap) Push(x any) { *h = append(*h, x.(*Packet)) }

func (h *packetHeap) Pop() any {
	old := *h
	n := len(old) - 1
	k := old[n]
	old[n] = nil
	*h = old[:n]
	return k
}
