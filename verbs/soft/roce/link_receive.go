package roce

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/internal/sys/udp"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// bufferLen is the longest datagram that is received: the largest path MTU and all headers, in
	// bytes. A longer one is refused.
	bufferLen = 4096 + wire.MaxHeader + tailLen
	// maxBuffers bounds the buffers of a link: those of a batch, and those that packets of the device
	// point into. Together they hold some 4 MiB.
	maxBuffers = 1024
	// copiedLen is the longest payload in bytes that is copied into its packet, so that its buffer is
	// free at once.
	copiedLen = 64
)

// buffer is the memory of one datagram. Its packet's payload points into it.
type buffer struct {
	hook ring.Hook[buffer]
	link *Link
	b    [bufferLen]byte
}

// InboxHook returns the link for the returned buffers; for package ring.
func (b *buffer) InboxHook() *ring.Hook[buffer] { return &b.hook }

// PacketDone returns the buffer. The fabric calls it when the packet is released.
func (b *buffer) PacketDone(*fabric.Packet) {
	l := b.link
	l.returned.Push(b)
	if l.starving.Load() && l.starving.Swap(false) {
		l.up.Wake()
	}
}

// rxBatch is the datagrams of one system call. All belongs to the link's runner.
type rxBatch struct {
	ins     [udp.MaxBatch]udp.In
	buffers [udp.MaxBatch]*buffer // of ins; nil: none yet
	free    *buffer               // linked by hook
	made    int
}

// receive passes the datagrams in a socket on to the device. It reports whether there may be more.
func (l *Link) receive(e *End) (more bool) {
	for range batchesPerRun {
		n := l.prepare()
		if n == 0 {
			e.ready.Store(true)
			return false // PacketDone has the link run
		}
		got, err := e.sock.Recv(l.rx.ins[:n])
		if err != nil || got == 0 {
			return false // an error belongs to one datagram that was sent, or ends the socket
		}
		l.stats.Received += uint64(got)
		e.passed()
		for i := range got {
			l.pass(e, i)
		}
		if got < n {
			return false
		}
	}
	return true
}

// prepare gives each datagram of the batch a buffer and returns how many have one.
func (l *Link) prepare() (n int) {
	r := &l.rx
	for n < len(r.ins) {
		if r.buffers[n] == nil {
			b := l.take()
			if b == nil {
				break
			}
			r.buffers[n], r.ins[n].Buf = b, b.b[:]
		}
		n++
	}
	if n == 0 {
		l.stats.Starved++
	}
	return n
}

// take returns a free buffer, or nil if all are in use.
func (l *Link) take() *buffer {
	r := &l.rx
	for range 2 {
		if r.free == nil {
			r.free = l.returned.TakeAll()
		}
		if b := r.free; b != nil {
			r.free = b.hook.Unlink()
			return b
		}
		if r.made < maxBuffers {
			r.made++
			return &buffer{link: l}
		}
		l.starving.Store(true) // and look again
	}
	return nil
}

// pass passes datagram i of the batch on to the device, or refuses it.
func (l *Link) pass(e *End, i int) {
	in := &l.rx.ins[i]
	b := in.Buf[:in.N]
	if in.Cut || in.N < wire.BTHLen+ICRCLen {
		l.stats.Refused++
		return
	}
	var h wire.Header
	end := in.N - ICRCLen
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
	k := l.up.Get()
	if l.far {
		p := e.Path(in.To, in.From)
		k.SetFar(&p)
	} else {
		k.Src = gidOf(in.From)
	}
	k.HdrLen = copy(k.Hdr[:], b[:n])
	switch payload := b[n : end-int(h.PadCount)]; {
	case len(payload) <= copiedLen:
		k.AddCopy(payload)
	default:
		k.AddRef(payload)
		k.Holder = l.rx.buffers[i]
		l.rx.buffers[i] = nil
	}
	l.up.SendTo(l.to, k)
}

// putICRC writes the ICRC at the start of b.
func putICRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }
