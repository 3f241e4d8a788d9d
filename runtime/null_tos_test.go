//go:build linux && cgo && !portable

package runtime

import (
	"fmt"
	"slices"
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

// Rule: the type of service is set before the route is resolved. On InfiniBand the subnet manager then gives the path a
// service level for it, which both ends of a connection and datagrams use.
func TestTOSOnInfiniBandIsAServiceLevel(t *testing.T) {
	const level = expedited >> 5 // the null device's subnet manager gives the precedence
	bed := profileBed("mlx5_ib")
	o := Options{TOS: expedited}
	a, b := bed.connected(t, Config{Conn: o})
	for _, c := range []*Conn{a, b} {
		if got := must.Get(c.q.QP().Query())(t).AH.SL; got != level {
			t.Errorf("the end at %v sends with service level %d, want %d", c.LocalAddr(), got, level)
		}
	}
	d := &tosDomain{PD: a.rt.pd}
	a.rt.pd = d
	p, q := mustListenPacket(t, a.rt, o), mustListenPacket(t, b.rt, Options{})
	must.Get(p.Resolve(testContext(t), q.Addr().String()))(t)
	if len(d.made) != 1 || d.made[0].SL != level {
		t.Errorf("the address handles are %+v, want one with service level %d", d.made, level)
	}
}

// tosCM is a provider and its channels of the connection manager, which record the options of identifiers.
type tosCM struct {
	verbs.Provider
	calls *[]string
}

func (p tosCM) CreateCMChannel() (verbs.CMChannel, error) {
	ch, err := p.Provider.CreateCMChannel()
	return tosChannel{ch, p.calls}, err
}

type tosChannel struct {
	verbs.CMChannel
	calls *[]string
}

func (ch tosChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	id, err := ch.CMChannel.CreateID(ps, userData)
	return tosID{id, ch.calls}, err
}

type tosID struct {
	verbs.CMID
	calls *[]string
}

func (id tosID) SetTOS(tos uint8) error {
	*id.calls = append(*id.calls, fmt.Sprintf("SetTOS(%#x)", tos))
	return id.CMID.SetTOS(tos)
}

func (id tosID) Listen(backlog int) error {
	*id.calls = append(*id.calls, "Listen")
	return id.CMID.Listen(backlog)
}

// Rule: a listener has the type of service of its connections before it listens: iWARP takes it then, and gives it to
// them (Linux cma.c, cma_iw_listen).
func TestTOSOfAListener(t *testing.T) {
	var calls []string
	rt := nullBed.open(t, Config{Provider: tosCM{nullBedProvider(t), &calls}}, 0)
	must.Get(rt.ListenOptions(":0", Options{TOS: expedited}))(t)
	if want := []string{"SetTOS(0xb8)", "Listen"}; !slices.Equal(calls, want) {
		t.Errorf("the calls for the listener are %v, want %v", calls, want)
	}
}
