//go:build linux && cgo && !portable

package runtime

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: on InfiniBand a reply goes to the LID from which the datagram came, with its service level, and from the LID
// to which it was sent, whether the datagram has a GRH or not; if it has one, the reply has, too.
func TestReplyOnInfiniBandGoesTheSameWay(t *testing.T) {
	const level, bits = 3, 1 // the null device's ports have two LIDs each
	bed := profileBed("mlx5_ib")
	near, far := bed.open(t, Config{}, 0), bed.open(t, Config{}, 1)
	a, b := mustListenPacket(t, near, Options{}), mustListenPacket(t, far, Options{})
	there, back := &tosDomain{PD: near.pd}, &tosDomain{PD: far.pd}
	near.pd, far.pd = there, back
	e := mustResolve(t, a, b.Addr().String())
	way := there.made[0]
	way.DLID, way.SL, way.SrcPathBits = way.DLID|bits, level, bits
	global := way
	global.DGID, global.HopLimit = must.Get(far.dev.QueryGID(1, 0))(t), 1
	from := must.Get(near.dev.QueryPort(1))(t).LID | bits
	plain := verbs.AHAttr{DLID: from, SL: level, SrcPathBits: bits, Port: 1}
	routed := plain
	routed.DGID, routed.HopLimit = must.Get(near.dev.QueryGID(1, 0))(t), 64
	for what, x := range map[string]struct{ sent, want verbs.AHAttr }{"without a GRH": {way, plain}, "with a GRH": {global, routed}} {
		a.sendBytes(t, must.Get(a.newPeer(&x.sent, e.qpn, e.qkey, e.group))(t), []byte("there"))
		k := b.mustRecv(t)
		back.made = nil
		peer, err := b.PeerOf(k)
		if err != nil || len(back.made) != 1 || back.made[0] != x.want {
			t.Errorf("%s: the address of the reply is %+v, error %v; want %+v", what, back.made, err, x.want)
		} else if b.sendBytes(t, peer, []byte("back")); a.take(t) != "back" {
			t.Errorf("%s: the reply is not what was sent", what)
		}
		must.Do(t, k.Release())
	}
}
