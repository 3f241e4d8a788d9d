package reactor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// lesser is a device that grants at most these capacities.
type lesser struct {
	verbs.Context
	most verbs.QPCap
}

// QPLimits implements verbs.Context.
func (l lesser) QPLimits(_ verbs.QPType, want verbs.QPCap, _ bool) (verbs.QPCap, error) {
	return verbs.QPCap{
		MaxSendWR: min(want.MaxSendWR, l.most.MaxSendWR), MaxRecvWR: min(want.MaxRecvWR, l.most.MaxRecvWR),
		MaxSendSGE: min(want.MaxSendSGE, l.most.MaxSendSGE), MaxRecvSGE: min(want.MaxRecvSGE, l.most.MaxRecvSGE),
		MaxInlineData: min(want.MaxInlineData, l.most.MaxInlineData),
	}, nil
}

// Rule: defaults are lowered to what the device grants, and so are capacities down to QueueConfig.Least; a capacity
// that is set fails with an error that says the limit.
func TestCapacitiesFitTheDevice(t *testing.T) {
	most := verbs.QPCap{MaxSendWR: 65, MaxRecvWR: 50, MaxSendSGE: 3, MaxRecvSGE: 1, MaxInlineData: 48}
	l := newLone(t, reactor.Config{Stepped: true}, func(ctx verbs.Context) verbs.Context { return lesser{ctx, most} })
	defer l.close(t)
	for name, c := range map[string]struct {
		cfg  reactor.QueueConfig
		fail string // a part of the error; "": none
	}{
		"defaults":  {reactor.QueueConfig{}, ""},
		"least":     {reactor.QueueConfig{SendDepth: 128, RecvDepth: 128, MaxSGE: 4, Inline: 64, Least: &reactor.Capacities{SendDepth: 60, Inline: 40}}, ""},
		"SendDepth": {reactor.QueueConfig{SendDepth: 65}, "SendDepth is 65, want at most 64"},
		"control":   {reactor.QueueConfig{SendDepth: 64, ControlDepth: 2}, "SendDepth is 64, want at most 62"},
		"RecvDepth": {reactor.QueueConfig{RecvDepth: 51}, "RecvDepth is 51, want at most 50"},
		"MaxSGE":    {reactor.QueueConfig{MaxSGE: 3, RecvSGE: 1}, "MaxSGE is 3, want at most 2"},
		"RecvSGE":   {reactor.QueueConfig{MaxSGE: 2}, "RecvSGE is 2, want at most 1"},
		"Inline":    {reactor.QueueConfig{Inline: 49}, "Inline is 49, want at most 48"},
		"Least":     {reactor.QueueConfig{Inline: 64, Least: &reactor.Capacities{Inline: 64}}, "Inline is 64, want at most 48"},
	} {
		c.cfg.PD = l.pd
		q, err := l.r.Prepare(c.cfg)
		if c.fail != "" {
			if !errors.Is(err, reactor.ErrConfig) || !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%s: Prepare returned %v, want ErrConfig and %q", name, err, c.fail)
			}
			continue
		}
		must.Do(t, err)
		l.do(t, func() { must.Do(t, q.Admit()) })
		if got := q.InitAttr().Cap; got != most {
			t.Errorf("%s: the queue pair is asked for %+v, want %+v", name, got, most)
		}
		l.do(t, func() { must.Do(t, q.Release(errOver)) })
	}
}
