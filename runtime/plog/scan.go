package plog

// cursor walks over the records of a lane. It reads untrusted bytes, and ends: each step moves it on by
// at least a line, and the lines that it may visit are those of the ring.
type cursor struct {
	log   layout
	lane  int
	state state // of the lane
	at    uint64
}

// next copies the record at the cursor into buf and moves the cursor behind it. It reports false where
// the whole records end.
//
// A record counts if it is whole, stands at the position that it names, and
//
//   - has the generation of the lane's last writer, if that writer began at its position or before;
//   - was there when that writer began, otherwise.
//
// So a record of an earlier writer behind the place where its successor began does not count, although
// it may be whole and fit the records before it (see the package documentation).
func (c *cursor) next(ring, buf []byte) (r record, copied []byte, ok bool) {
	n := c.log.lines()
	r, buf, ok = parseRecord(ring, int(c.at%n)*LineSize, c.log.id, buf)
	if !ok || r.position != c.at || r.lane != c.lane {
		return r, buf, false
	}
	end := c.at + r.lines(n)
	if c.at >= c.state.claimed {
		ok = r.generation == c.state.generation
	} else {
		ok = end <= c.state.claimed
	}
	if !ok || end-c.state.head > n {
		return r, buf, false
	}
	c.at = end
	return r, buf, true
}

// to moves the cursor over the whole records up to a position, and not beyond it.
func (c *cursor) to(ring, buf []byte, limit uint64) []byte {
	for at := c.at; c.at < limit; at = c.at {
		var ok bool
		if _, buf, ok = c.next(ring, buf); !ok || c.at > limit {
			c.at = at
			break
		}
	}
	return buf
}

// tail moves the cursor behind the last whole record, and returns that position.
func (c *cursor) tail(ring, buf []byte) (uint64, []byte) {
	for ok := true; ok; {
		_, buf, ok = c.next(ring, buf)
	}
	return c.at, buf
}
