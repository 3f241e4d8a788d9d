package interop

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// perfVersion is the version that our client sends, in 16 bytes. The server needs a number of at least 5.70.
const perfVersion = "6.23\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// perfSteps is the number of exchanges of keys between a client and a server (perftest 25.01, main in src/write_bw.c and
// the other programs).
type perfSteps struct {
	before int  // until the queue pairs are connected
	after  int  // from then until the load
	report bool // after the load, one more exchange of keys, and five of numbers of 8 bytes
}

var perfPrograms = map[string]perfSteps{
	"ib_send_bw": {1, 3, false}, "ib_write_bw": {1, 2, true}, "ib_read_bw": {1, 2, true}, "ib_atomic_lat": {2, 2, false},
}

// perfDialog is the client's half of an exchange. An error ends the test.
type perfDialog struct {
	*perfEnd
	net.Conn
}

// swap writes a message, and reads one of as many bytes.
func (d *perfDialog) swap(what []byte) []byte {
	_, err := d.Write(what)
	d.must(err)
	got := make([]byte, len(what))
	_, err = io.ReadFull(d, got)
	d.must(err)
	return got
}

// swapKeys exchanges keys n times, and returns those of the server.
func (d *perfDialog) swapKeys(n int) (theirs string) {
	own, err := d.keys()
	d.must(err)
	for range n {
		theirs = string(d.swap([]byte(own)))
	}
	return theirs
}

// perfServer runs a server of perftest with a client of ours.
func (b *bench) perfServer(l perfLoad) {
	port := b.freePort()
	p := b.start(l.name, l.arguments(b.theirs, port)...)
	nc := untilListening(p, func() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+port) }, func(err error) bool {
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	defer nc.Close()
	end := b.perfEnd(l.size, l.mtu)
	d := &perfDialog{&end, nc}
	steps := perfPrograms[l.name]
	d.swap([]byte(perfVersion))
	d.swap(make([]byte, 4)) // the size of a page and of a cache line: the server's are larger
	d.swap(make([]byte, 4))
	d.swap([]byte{'0' + byte(l.mtu), 0})
	to, far, err := perfPeer(d.swapKeys(steps.before))
	b.must(err)
	c, err := end.prepared.Connect(b.ctx, to)
	b.must(err)
	d.swapKeys(steps.after)
	b.load(c, l, end.region, far)
	if steps.report {
		d.swapKeys(1)
		for range 5 { // the size, the iterations, and three rates
			d.swap(binary.BigEndian.AppendUint64(nil, 1))
		}
	}
	d.swapKeys(1)
	p.succeeded()
	b.closing(c)
}

// load does what the program's client does.
func (b *bench) load(c *verbena.Conn, l perfLoad, region *verbena.Region, far verbena.Remote) {
	far.Length, far.Access = uint64(l.size), verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic
	if l.size == 0 {
		far.Length = 8
	}
	local, err := region.Slice(0, int(far.Length))
	b.must(err)
	op := map[string]verbena.Op{
		"ib_send_bw": verbena.SendOp(local), "ib_write_bw": verbena.WriteOp(local, far), "ib_read_bw": verbena.ReadOp(local, far),
		"ib_atomic_lat": verbena.FetchAndAddOp(far, 1),
	}[l.name]
	var before uint64
	for i := range l.times {
		r, err := c.Do(b.ctx, &op)
		b.must(err)
		if l.name != "ib_atomic_lat" {
			continue
		}
		if i > 0 && r.Value != before+1 {
			b.Fatalf("a word of %d was %d before 1 was added", r.Value, before)
		}
		before = r.Value
	}
}
