package reactor_test

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// smallCQs is a device whose completion queues have few entries.
type smallCQs struct {
	verbs.Context
	max int
}

func (s smallCQs) QueryDevice() (verbs.DeviceAttr, error) {
	d, err := s.Context.QueryDevice()
	d.MaxCQE = s.max
	return d, err
}

func (s smallCQs) CreateCQ(n int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	if n > s.max {
		return nil, &verbs.OpError{Op: "ibv_create_cq", Object: "a small device", Err: verbs.ErrInvalid}
	}
	return s.Context.CreateCQ(n, ch, vector, userData)
}

// Rule: the default Config suits a device whose completion queues have fewer entries than DefaultCQEntries. More entries
// than the device has, asked for explicitly, are refused by it.
func TestADeviceWithSmallCompletionQueuesIsOpened(t *testing.T) {
	const few = 1024
	ctx := smallCQs{home().open(t, 0), few}
	defer func() { must.Do(t, ctx.Close()) }()
	r := must.Get(reactor.New(reactor.Config{Context: ctx}))(t)
	must.Do(t, r.Close(bounded(t)))
	if _, err := reactor.New(reactor.Config{Context: ctx, CQEntries: few + 1}); err == nil {
		t.Errorf("a device of %d entries took a Config of %d", few, few+1)
	}
}
