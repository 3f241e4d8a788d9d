package peers

import (
	"fmt"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// The number of small WRITEs outstanding, and started together.
const rateDepth, rateList = 256, 32

// connectPart is the divisor of the operations of a round for connections.
const connectPart = 500

// rate returns the rows of small WRITEs in lists.
func (s *session) rate() suite.Trial {
	n := s.part(1)
	ucx := s.ucx("ucp_put_bw", bed.Word, n)
	ours := s.own("ours", "stream", "target", shape{size: bed.Word, list: rateList, depth: rateDepth}, n)
	figure := fmt.Sprintf("8 B WRITE rate, lists of %d, %d outstanding", rateList, rateDepth)
	return suite.Trial{Sides: sides(ucx, ours), Rows: append([]suite.Row{
		row(figure+", beside UCX tcp ucp_put_bw", millions, report.AtLeast(6, report.Ratio, "at least 6 ×"), ucx, of(vRate, mega), ours, millionOps),
		alone(figure, millions, report.Reported(report.Value), ours, millionOps),
	}, costs(figure, ours)...)}
}

// mega and giga are the prefixes of units.
const mega, giga = 1e6, 1e9

// millionOps returns the operations a second, in millions.
func millionOps(v rounds.Values) float64 {
	return v[suite.Ops] / max(v[suite.Wall], 1) * giga / mega
}

// bandwidths returns the rows of larger WRITEs, for each size.
func (s *session) bandwidths() (all []suite.Trial) {
	for _, c := range []struct {
		name  string
		shape shape
		part  int // the divisor of the operations of a round
		// The goals beside UCX's put and tag, the floor, and Go's TCP.
		put, tag, floor, bytes report.Goal
	}{
		{"4 KiB", shape{size: 4 << 10, list: 16, depth: 64}, 2, reported, reported, reported, reported},
		{"64 KiB", shape{size: burst, list: 4, depth: 16}, 12,
			report.AtLeast(2, report.Ratio, "at least 2 ×"), report.AtLeast(1.2, report.Ratio, "at least 1.2 ×"),
			report.AtLeast(0.85, report.Ratio, "at least 0.85 ×"), report.AtMost(1.2, report.Ratio, "at most 1.2 ×")},
		{"1 MiB", shape{size: 1 << 20, list: 1, depth: 4}, 200, reported, reported, reported, reported},
	} {
		n, size := s.part(c.part), c.shape.size
		tcp := s.own("Go TCP", "tcp-stream", "tcp-sink", c.shape, n)
		put, tag := s.ucx("ucp_put_bw", size, n), s.ucx("tag_bw", size, n)
		ours := s.own("ours", "stream", "target", c.shape, n)
		moved := func(v rounds.Values) float64 { return v[suite.Ops] * float64(size) / max(v[suite.Wall], 1) }
		theirs := of(vBytes, giga)
		figure := fmt.Sprintf("%s WRITE bandwidth, %d outstanding", c.name, c.shape.depth)
		t := suite.Trial{Sides: sides(tcp, put, tag), Rows: []suite.Row{
			row(figure+", beside UCX tcp ucp_put_bw", gigabytes, c.put, put, theirs, ours, moved),
			row(figure+", beside UCX tcp tag_bw", gigabytes, c.tag, tag, theirs, ours, moved),
		}}
		if size == burst {
			gso := s.gsoFloor(n)
			t.Sides = append(t.Sides, gso.side())
			t.Rows = append(t.Rows,
				row(figure+", beside GSO in C", gigabytes, c.floor, gso, moved, ours, moved),
				row(figure+": CPU per byte, both sides, beside GSO in C", perByte, reported,
					gso, per(float64(size), suite.CPU, vPeerCPU), ours, per(float64(size), suite.CPU, vPeerCPU)))
		}
		t.Sides = append(t.Sides, ours.side())
		t.Rows = append(t.Rows, row(figure+", beside Go TCP", gigabytes, reported, tcp, moved, ours, moved))
		for _, v := range []struct {
			where string
			goal  report.Goal
			names []string
		}{
			{"both sides", c.bytes, []string{suite.CPU, vPeerCPU}},
			{"client", reported, []string{suite.CPU}},
			{"server", reported, []string{vPeerCPU}},
		} {
			spent := per(float64(size), v.names...)
			t.Rows = append(t.Rows, row(fmt.Sprintf("%s: CPU per byte, %s, beside Go TCP", figure, v.where), perByte, v.goal, tcp, spent, ours, spent))
		}
		t.Rows = append(t.Rows, alone(figure+": allocations per operation, both sides", "", noAllocations, ours, per(1, suite.Mallocs, vPeerMallocs)))
		all = append(all, t)
	}
	return all
}

// connections returns the rows of making connections.
func (s *session) connections() suite.Trial {
	n := s.part(connectPart)
	ours := s.own("ours", "connect", "accept", shape{runtime: smallConfig}, n)
	figure := fmt.Sprintf("connections made, %d at a time, small options", bed.Dialers)
	goal := report.Reported(report.Value)
	return suite.Trial{Sides: sides(ours), Rows: []suite.Row{
		alone(figure, perSecondUnit, report.AtLeast(5000, report.Value, "at least 5000 a second"), ours, of(vRate, 1)),
		alone(figure+": CPU to make and close each, client", microseconds, goal, ours, per(perMicro, suite.CPU)),
		alone(figure+": CPU to make and close each, server", microseconds, goal, ours, per(perMicro, vPeerCPU)),
	}}
}
