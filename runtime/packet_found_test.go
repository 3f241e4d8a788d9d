package runtime

import (
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// manyAddresses is a provider whose device has its address where RoCE ports have
// theirs: behind link-local ones of RoCEv1.
type manyAddresses struct{ verbs.Provider }

func (p manyAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	return &manyContext{c}, err
}

type manyContext struct{ verbs.Context }

const manyBefore = 3

func (c *manyContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	a, err := c.Context.QueryPort(port)
	a.GIDTblLen += manyBefore
	return a, err
}

func (c *manyContext) QueryGIDEntry(port uint8, index int) (verbs.GIDEntry, error) {
	e, err := c.Context.QueryGIDEntry(port, max(0, index-manyBefore))
	if e.Index = index; index < manyBefore {
		e.GID, e.Type = verbs.GID{0: 0xfe, 1: 0x80, 15: 1}, verbs.GIDRoCEv1
	}
	return e, err
}

// Rule: a reply leaves from the address that peers know, not from the first of the
// port's table: Soft-RoCE refused an address handle that went from its link-local
// address to an IPv4 one (EINVAL), so nobody could be replied to.
func TestRepliesLeaveFromTheChosenAddress(t *testing.T) {
	p := mustListenPacket(t, mustOpen(t, Config{Provider: manyAddresses{soft.Default()}, Device: "soft0"}), Options{})
	if p.from != manyBefore {
		t.Errorf("replies leave from entry %d, want %d", p.from, manyBefore)
	}
}
