package roce

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// bufferLen is the longest datagram in bytes of a link that receives them one by one: the largest path
	// MTU and all headers. A longer one is refused.
	bufferLen = 4096 + wire.MaxHeader + ICRCLen
	// joinedBatch is the number of buffers for one system call of a link that receives joined datagrams.
	joinedBatch = 16
	// bufferBytes bounds the buffers of a link in bytes: those of a batch, and those that packets of the
	// device point into.
	bufferBytes = 8 << 20
	// packetsPerRun is the number of datagrams after which a run ends and leaves the other datagrams to the
	// next run, so that other ports run in between during a flood.
	packetsPerRun = 256
	// junkPerRest is the number of datagrams without a packet after which a socket rests for pollTime. With a
	// rest after each system call, 7 % of 500 packets a second arrived beside 100,000 datagrams of junk.
	junkPerRest = 1024
	// copiedLen is the longest payload in bytes that is copied into its packet, so that its buffer is
	// free at once.
	copiedLen = 64
)

// buffer is the memory of one datagram, or of joined ones. Their packets' payloads point into it.
type buffer struct {
	hook ring.Hook[buffer]
	link *Link
	b    []byte
	// users is the number of packets that point into b, and the link while it reads b. The link's runner
	// raises it, and any goroutine that releases a packet lowers it; the one that lowers it to 0 has the
	// buffer.
	users atomic.Int32
}

// InboxHook returns the link for the returned buffers; for package ring.
func (b *buffer) InboxHook() *ring.Hook[buffer] { return &b.hook }

// PacketDone returns the buffer with its last packet. The fabric calls it when a packet is released.
func (b *buffer) PacketDone(*fabric.Packet) {
	if b.users.Add(-1) > 0 {
		return
	}
	l := b.link
	l.returned.Push(b)
	if l.starving.Load() && l.starving.Swap(false) {
		l.up.Wake()
	}
}

// rxBatch is the datagrams of one system call. All belongs to the link's runner.
type rxBatch struct {
	size    int // of a buffer in bytes
	batch   int // the most buffers of a call
	ins     [udp.MaxBatch]udp.In
	buffers [udp.MaxBatch]*buffer // of ins; nil: none yet
	free    *buffer               // linked by hook
	made    int
}

// receive passes the datagrams in a socket on to the device. It reports whether there may be more. With polled
// the caller polls again, and a datagram that comes alone is passed on before the next look.
//
// The calls have as many buffers as datagrams are likely to come. Linux looks at the socket again for each
// that is left, which takes a third of the time of receiving one. After a datagram that came alone the next call has
// one buffer again.
func (l *Link) receive(e *End, polled bool) (more bool) {
	for passed := 0; passed < packetsPerRun; {
		n := l.prepare(e.next)
		if n == 0 {
			if passed == 0 {
				l.stats.Starved++
			}
			e.ready.Store(true)
			return false // PacketDone has the link run
		}
		got, err := e.sock.Recv(l.rx.ins[:n])
		if err != nil || got == 0 {
			e.again = false
			return false // an error belongs to one datagram that was sent, or ends the socket
		}
		came, junk := 0, l.stats.junk()
		for i := range got {
			came += l.split(e, i)
		}
		passed += came
		if l.stats.junk()-junk < uint64(came) {
			e.junk = 0
			e.passed()
		} else if e.junk += came; l.far && e.junk >= junkPerRest {
			e.junk = 0
			e.flooded.Store(true)
			return false
		}
		if got < n {
			e.next, e.again = got, false
			return false
		}
		if n > 1 || e.again {
			e.next = min(2*n, l.rx.batch)
		}
		e.again = true
		if polled && n == 1 {
			return false
		}
	}
	return true
}

// prepare gives up to most datagrams of the batch a buffer and returns how many have one.
func (l *Link) prepare(most int) (n int) {
	r := &l.rx
	for n < most {
		if r.buffers[n] == nil {
			b := l.take()
			if b == nil {
				break
			}
			r.buffers[n], r.ins[n].Buf = b, b.b
		}
		n++
	}
	return n
}

// take returns a free buffer, or nil if all are in use.
func (l *Link) take() *buffer {
	r := &l.rx
	for look := range 2 {
		if r.free == nil {
			r.free = l.returned.TakeAll()
		}
		if b := r.free; b != nil {
			r.free = b.hook.Unlink()
			if look > 0 {
				l.starving.Store(false) // perhaps no other is in use any more, and would clear it
			}
			return b
		}
		if r.made < bufferBytes/r.size {
			r.made++
			return &buffer{link: l, b: make([]byte, r.size)}
		}
		l.starving.Store(true) // and look again
	}
	return nil
}

// split passes on datagram i of the batch, or the datagrams joined in it. It returns how many those are.
func (l *Link) split(e *End, i int) (n int) {
	in, b := &l.rx.ins[i], l.rx.buffers[i]
	each := in.Each
	if each <= 0 {
		each = in.N
	}
	var path wire.Path
	if l.far {
		path = e.Path(in.To, in.From)
	}
	b.users.Store(1)
	for rest := in.Buf[:in.N]; n == 0 || len(rest) > 0; n++ {
		one := rest[:min(each, len(rest))]
		rest = rest[len(one):]
		l.pass(e, in, one, &path, b)
	}
	l.stats.Received += uint64(n)
	if b.users.Add(-1) > 0 {
		l.rx.buffers[i] = nil
	}
	return n
}

// pass passes datagram b, which lies in a buffer, on to the device, or refuses it.
func (l *Link) pass(e *End, in *udp.In, b []byte, path *wire.Path, mem *buffer) {
	if in.Cut || len(b) < wire.BTHLen+ICRCLen {
		l.stats.Refused++
		return
	}
	var h wire.Header
	end := len(b) - ICRCLen
	n, err := wire.Parse(b[:end], &h)
	if err != nil || n+int(h.PadCount) > end {
		l.stats.Refused++
		return
	}
	c := &l.cover
	if !l.far {
		c.Src, c.Dst, c.AnyID = in.From, e.sock.Local(), true
	}
	if !c.Check(b) {
		l.stats.BadICRC++
		return
	}
	var src verbs.GID
	if !l.far {
		// The packets of the devices of this process never leave it. A datagram from such an address is forged:
		// any program of the machine may have a socket there.
		if src = gidOf(in.From); l.up.Fabric().Has(src) {
			l.stats.Refused++
			return
		}
	}
	k := l.up.Get()
	if l.far {
		k.SetFar(path)
	} else {
		k.Src = src
	}
	k.HdrLen = copy(k.Hdr[:], b[:n])
	switch payload := b[n : end-int(h.PadCount)]; {
	case len(payload) <= copiedLen:
		k.AddCopy(payload)
	default:
		k.AddRef(payload)
		k.Holder = mem
		mem.users.Add(1)
	}
	l.up.SendTo(l.to, k)
}

// putICRC writes the ICRC at the start of b.
func putICRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }
