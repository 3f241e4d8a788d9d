package outage

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// transfer writes to slot i of the peer's memory and reads it back.
func (s *session) transfer(mine verbena.Remote, i int) bool {
	return s.writeAndReadBack(mine, slotAt+uint64(i)*slot, slot, KindWrite, KindRead, uint64(i)<<32)
}

// big does the same with transfers of many packets.
func (s *session) big(mine verbena.Remote) bool {
	return s.writeAndReadBack(mine, bigAt, bigSize, KindBig, KindBig, 1<<40)
}

// writeAndReadBack writes n bytes at offset at of the peer's memory and reads them back, in each
// round. The argument first is the number of the first transfer.
func (s *session) writeAndReadBack(mine verbena.Remote, at, n uint64, write, read Kind, first uint64) bool {
	to, err := mine.At(at, n)
	out, oerr := s.p.rt.Alloc(int(n))
	if err = errors.Join(err, oerr); err != nil {
		return s.fault("preparing", err)
	}
	defer s.give(out)
	in, err := s.p.rt.Alloc(int(n))
	if err != nil {
		return s.fault("preparing", err)
	}
	defer s.give(in)
	round := uint64(0)
	for ; s.round(round); round++ {
		fill(out.Bytes(), s.seed, first+round)
		if _, err := s.do(write, func() (verbena.Future, error) { return s.c.Write(bg, out.Slice(), to) }); err != nil {
			return false
		}
		err := s.readBack(read, in, to, first+round)
		if errors.Is(err, errLacks) { // read again: if data is missing again, that is a finding
			s.p.ledger.departs(DepartureLacking)
			err = s.readBack(read, in, to, first+round)
		}
		switch {
		case errors.Is(err, errData):
			s.p.ledger.wrong("%s and read back: %v", write, err)
		case err != nil:
			return false
		}
	}
	return s.all(round)
}

// Errors of readBack: errData for wrong data. errLacks, which wraps errData, for missing data.
var (
	errData  = errors.New("the data")
	errLacks = fmt.Errorf("%w is not all there", errData)
)

// readBack reads transfer n and checks it.
func (s *session) readBack(read Kind, in verbena.Buffer, from verbena.Remote, n uint64) error {
	clear(in.Bytes())
	if _, err := s.do(read, func() (verbena.Future, error) { return s.c.Read(bg, in.Slice(), from) }); err != nil {
		return err
	}
	err := check(in.Bytes(), s.seed, n)
	switch {
	case err == nil:
		return nil
	case lacks(in.Bytes(), s.seed, n):
		return fmt.Errorf("%w: %w", errLacks, err)
	}
	return fmt.Errorf("%w: %w", errData, err)
}

// count changes a word of the peer's memory with atomics, three times with FETCH_AND_ADD and the
// fourth time with COMPARE_AND_SWAP. Each answer must be the value that the atomic before it left,
// which shows an atomic that was executed twice or not at all.
func (s *session) count(mine verbena.Remote) bool {
	word, err := mine.At(0, 8)
	if err != nil {
		return s.fault("preparing", err)
	}
	have, err := s.word(word) // left by earlier users of the area
	if err != nil {
		return false
	}
	n := uint64(0)
	for ; s.round(n); n++ {
		next := have + n + 1
		swaps := n%4 == 3
		again := next + n + 1 // the word's value if a FETCH_AND_ADD is executed twice
		if swaps {
			again = next
		}
		r, err := s.do(KindAtomic, func() (verbena.Future, error) {
			if swaps {
				return s.c.Start(bg, new(verbena.CompareAndSwapOp(word, have, next)))
			}
			return s.c.Start(bg, new(verbena.FetchAndAddOp(word, next-have)))
		})
		if errors.Is(err, reactor.ErrUnanswered) { // executed once, not at all, or twice
			now, err := s.word(word)
			if err != nil {
				return false
			}
			if now == again && now != next {
				s.p.ledger.departs(DepartureTwice)
			} else if now != have && now != next {
				s.p.ledger.wrong("atomic %d, which was not answered, made %d of %d", n, now, have)
			}
			have = now
			continue
		}
		if err != nil {
			return false
		}
		switch r.Value {
		case have:
			have = next
		case next: // the answer to a second execution
			s.p.ledger.departs(DepartureTwice)
			have = again
		default:
			s.p.ledger.wrong("atomic %d answered %d, want %d", n, r.Value, have)
			have = next
		}
	}
	return s.all(n)
}

// word returns the value of the word at the address at. It adds 0 to the word, again and again
// until the atomic is answered.
func (s *session) word(at verbena.Remote) (uint64, error) {
	for {
		r, err := s.do(KindAtomic, func() (verbena.Future, error) { return s.c.Start(bg, new(verbena.FetchAndAddOp(at, 0))) })
		if !errors.Is(err, reactor.ErrUnanswered) {
			return r.Value, err
		}
	}
}
