package verbstest

import (
	"math/bits"

	"github.com/verbena-rdma/verbena/verbs"
)

var keyCases = []Spec{
	{Name: "keys_of_living_regions_differ", Rule: "IBTA 10.6.3; ibv_reg_mr(3)", run: keysDiffer},
	{Name: "keys_are_unpredictable", Rule: "semantics 14", needs: needs{random: true}, run: keysUnpredictable},
	{Name: "region_says_what_was_registered", Rule: "ibv_reg_mr_iova(3)", run: regionSays},
	{Name: "iova_names_the_region_to_both_sides", Rule: "ibv_reg_mr_iova(3); rxe mr_check_range", needs: sendWrite, run: iovaNames},
}

// keySample is the number of regions examined.
const keySample = 64

func keysDiffer(c *Case) {
	lkeys, rkeys := map[uint32]bool{}, map[uint32]bool{}
	for range keySample {
		r := c.A.region(64)
		if lkeys[r.mr.LKey()] || rkeys[r.mr.RKey()] {
			c.failf("two living regions share the lkey %#x or the rkey %#x", r.mr.LKey(), r.mr.RKey())
		}
		lkeys[r.mr.LKey()], rkeys[r.mr.RKey()] = true, true
	}
}

// An attacker with one key must not find the next: among keys made one after another at least 8
// bits flip on average, and no step repeats often.
func keysUnpredictable(c *Case) {
	const wantFlips = 8
	flips, steps := 0, map[uint32]int{}
	last := c.A.region(64).mr.RKey()
	for range keySample {
		k := c.A.region(64).mr.RKey()
		flips += bits.OnesCount32(k ^ last)
		steps[k-last]++
		last = k
	}
	if flips < wantFlips*keySample {
		c.failf("keys made one after another differ in %d bits of %d keys: they can be guessed", flips, keySample)
	}
	for s, n := range steps {
		if n > keySample/8 {
			c.failf("%d of %d keys follow the one before by %#x: they can be guessed", n, keySample, s)
		}
	}
	// The same region registered again, as after a reconnect, has new keys.
	a := c.A.region(64)
	old := a.mr.RKey()
	a.dereg()
	if b := c.A.region(64); b.mr.RKey() == old {
		c.failf("the key %#x of a dead region was given to the next one", old)
	}
}

func regionSays(c *Case) {
	const iova = 0x7000_0000_1000
	r := c.A.regionOf(c.A.pd, 5000, verbs.AccessLocalWrite, iova)
	if r.mr.Addr() != r.arena.Addr() || r.mr.Length() != 5000 || r.mr.IOVA() != iova {
		c.failf("registered %#x, 5000 bytes, iova %#x; the region says %#x, %d, %#x", r.arena.Addr(), uint64(iova), r.mr.Addr(), r.mr.Length(), r.mr.IOVA())
	}
}

// Work requests of the owner and of the peer name memory by its iova.
func iovaNames(c *Case) {
	const iova = 0x5000_0000_2000
	a, b := c.link()
	src := c.A.regionOf(c.A.pd, 256, verbs.AccessLocalWrite, iova).fill(1)
	dst := c.B.regionOf(c.B.pd, 256, fullAccess, iova).poison()
	a.send(writeOf(1, dst, 16, src.sge(32, 64)))
	a.sent(a.scq.one(), 1, verbs.WCRDMAWrite)
	c.same(dst.bytes()[16:80], src.bytes()[32:96], "a WRITE between regions named by iova")
	c.untouched(dst.bytes()[:16], "memory before the target of the WRITE")
	b.recv(RR{id: 2, sg: sg(dst.sge(128, 64))})
	a.send(sendOf(3, src.sge(0, 64)))
	b.received(b.rcq.one(), 2, verbs.WCRecv, 64)
	c.same(dst.bytes()[128:192], src.bytes()[:64], "a SEND between regions named by iova")
}
