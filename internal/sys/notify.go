package sys

// listen has a source without a descriptor announce itself in p. The key is
// announced once at the start, whatever the source says, so that nothing queued
// before is missed.
func (p *Poller) listen(s Source, key uint32) *mark {
	m := &mark{key: key}
	announce := func() {
		if p.marks.announce(m) {
			p.Ring()
		}
	}
	s.Notify(announce)
	announce()
	return m
}

// silence undoes listen.
func (a attachment) silence() {
	a.mark.gone.Store(true)
	a.source.Notify(nil)
}
