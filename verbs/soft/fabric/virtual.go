package fabric

import "time"

// Step delivers, in virtual time, the delayed packets that are due and then runs every endpoint
// that has been kicked, has packets, or whose deadline has come, once each in the order of
// attachment. It returns false when there was nothing to do at this time. One goroutine steps a
// fabric; the same seed and the same calls give the same packets in the same order.
func (f *Fabric) Step() bool {
	f.mustBeVirtual("Step")
	now := f.now.Load()
	did := false
	f.delay.collect()
	for k := f.delay.due(now); k != nil; k = f.delay.due(now) {
		did = true
		if to := f.arrive(k); to != nil {
			to.wanted.Store(true)
		}
	}
	for _, p := range *f.ports.Load() {
		d := p.deadline.Load()
		if d != 0 && d <= now {
			p.deadline.Store(0)
			p.wanted.Store(true)
		}
		if !p.wanted.Swap(false) {
			continue
		}
		did = true
		// Only another goroutine in Exclusive can hold the token: run the endpoint in the next
		// step.
		if !p.token.tryTake() {
			p.wanted.Store(true)
			continue
		}
		more := p.progress(now)
		p.settleVirtual()
		if more {
			p.wanted.Store(true)
		}
		p.release()
	}
	return did
}

// settleVirtual hands over the packets that p's run sent and returned, and requests runs of the
// ports that it sent to. p's token is held.
func (p *Port) settleVirtual() {
	for i := range p.touched {
		p.settle(i).wanted.Store(true)
	}
	p.touched = p.touched[:0]
	p.giveBack()
}

// NextEvent returns, in virtual time, the earliest deadline of an endpoint or of a delayed packet;
// false if there is none. Call it when Step returns false.
func (f *Fabric) NextEvent() (time.Duration, bool) {
	f.mustBeVirtual("NextEvent")
	f.delay.collect()
	t := min(f.earliest(), f.delay.next())
	if t == never {
		return 0, false
	}
	return time.Duration(t), true
}

// AdvanceTo sets the virtual time to t; it never goes back. The next Step does the work due then.
func (f *Fabric) AdvanceTo(t time.Duration) {
	f.mustBeVirtual("AdvanceTo")
	if int64(t) > f.now.Load() {
		f.now.Store(int64(t))
	}
}

func (f *Fabric) mustBeVirtual(call string) {
	if !f.cfg.Virtual {
		panic("fabric: " + call + " needs Config.Virtual: this fabric runs on real time")
	}
}
