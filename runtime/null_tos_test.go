//go:build linux && cgo && !portable

package runtime

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

const expedited = 46 << 2 // DSCP EF (RFC 3246)

// Rule: an accepting end uses its own type of service where the request does not bring one: the peer set
// none, or the connection manager does not carry it.
func TestTOSOfAnAcceptingEnd(t *testing.T) {
	for _, c := range []struct {
		profile string
		dialer  uint8
		want    uint8 // at the accepting end
	}{
		{"mlx5", 0, expedited},
		{"mlx5", 8 << 2, 8 << 2}, // the dialing end's
		{"iwarp", 8 << 2, expedited},
	} {
		bed := profileBed(c.profile)
		client, server := bed.open(t, Config{}, 0), bed.open(t, Config{}, 1)
		ln := must.Get(server.ListenOptions(":0", Options{TOS: expedited}))(t)
		seat := must.Get(ln.AcceptAsync())(t)
		a := must.Get(client.DialOptions(testContext(t), ln.Addr().String(), Options{TOS: c.dialer}))(t)
		b := must.Get(seat.Await(testContext(t)))(t)
		for end, want := range map[*Conn]uint8{a: c.dialer, b: c.want} {
			if got := must.Get(end.q.QP().Query())(t).AH.TrafficClass; got != want {
				t.Errorf("%s: dialed with %#x, the end at %v sends with %#x, want %#x", c.profile, c.dialer, end.LocalAddr(), got, want)
			}
		}
		must.Do(t, client.Close(testContext(t)))
		must.Do(t, server.Close(testContext(t)))
	}
}

// tosDomain is a PD that records the address handles.
type tosDomain struct {
	verbs.PD
	made []verbs.AHAttr
}

func (d *tosDomain) CreateAH(a *verbs.AHAttr) (verbs.AH, error) {
	d.made = append(d.made, *a)
	return d.PD.CreateAH(a)
}

// Rule: datagrams and connections without a connection manager have Options.TOS.
func TestTOSWithoutAConnection(t *testing.T) {
	a, b := nullBed.open(t, Config{}, 0), nullBed.open(t, Config{}, 1)
	d := &tosDomain{PD: a.pd}
	a.pd = d
	p, q := mustListenPacket(t, a, Options{TOS: expedited}), mustListenPacket(t, b, Options{})
	must.Get(p.Resolve(testContext(t), q.Addr().String()))(t)
	if len(d.made) != 1 || d.made[0].TrafficClass != expedited {
		t.Errorf("the address handles are %+v, want one with type of service %#x", d.made, expedited)
	}
	prepared := must.Get(a.Prepare(PlainOptions{Options: Options{TOS: expedited}}))(t)
	if got := prepared.path.TrafficClass; got != expedited {
		t.Errorf("a connection without a connection manager has type of service %#x, want %#x", got, expedited)
	}
	must.Do(t, prepared.Close(testContext(t)))
}
