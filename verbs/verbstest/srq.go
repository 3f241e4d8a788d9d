package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// SRQ is a shared receive queue of a case.
type SRQ struct {
	verbs.SRQ
	end *End
}

// srqOf makes a shared receive queue.
func (e *End) srqOf(attr verbs.SRQAttr) *SRQ {
	e.c.t.Helper()
	s, err := e.pd.CreateSRQ(&attr)
	e.c.must(err, "create_srq of %d receives", attr.MaxWR)
	e.c.defers(s.Close)
	return &SRQ{SRQ: s, end: e}
}

// srq makes a shared receive queue of n receives.
func (e *End) srq(n int) *SRQ {
	e.c.t.Helper()
	return e.srqOf(verbs.SRQAttr{MaxWR: uint32(n), MaxSGE: 1})
}

// tryRecv posts the receives as one list.
func (s *SRQ) tryRecv(rs ...RR) (int, error) {
	head := s.end.recvList(rs)
	n, err := verbs.PostSRQRecv(s.SRQ, head, len(rs))
	s.end.scribble(head, len(rs)*verbs.SizeofRecvWR)
	return n, err
}

// recv posts the receives; all must be accepted.
func (s *SRQ) recv(rs ...RR) {
	c := s.end.c
	c.t.Helper()
	if n, err := s.tryRecv(rs...); err != nil || n != len(rs) {
		c.failf("post_srq_recv at %s accepted %d of %d: %v", s.end.name, n, len(rs), err)
	}
}

// fillWith posts receives 1 to n of size bytes each, and returns their memory.
func (s *SRQ) fillWith(n, size int) *Region {
	s.end.c.t.Helper()
	r := s.end.region(n * size).poison()
	for i := range n {
		s.recv(RR{id: uint64(i + 1), sg: sg(r.sge(i*size, size))})
	}
	return r
}
