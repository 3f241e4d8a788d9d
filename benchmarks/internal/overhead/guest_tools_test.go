package overhead

import (
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// Sample output of the programs, as seen in the guest (perftest 25.01, libfabric 2.1).
const (
	printedRate = `---------------------------------------------------------------------------------------
                    RDMA_Write Post List BW Test
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 8          20000            0.50               0.49   		     0.064321
---------------------------------------------------------------------------------------
`
	printedLatency = `                    Send Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       2000          50.10          812.20       56.20     	       58.31       		11.20		80.10			300.00
`
	printedFabric = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
8       2k      =2k      31k         0.44s      0.07     110.31       0.01
`
)

// Rule: the figure is found in a program's output, in our unit; other output gives an error and
// no figure.
func TestFiguresOfPrograms(t *testing.T) {
	p := guest.Place{Here: "rxe0", There: "rxe1", Addr: "10.77.0.2", GIDHere: "1", GIDThere: "2", Self: "/tmp/b"}
	rate := perftest(p, 7, "ib_write_bw", columnMsgRate, vRate, 1, "-n", "64")
	lat := perftest(p, 7, "ib_send_lat", columnTypical, suite.P50, perMicro, "-n", "64")
	fab := fabric(p, 7, 64)
	own := self(p, 7, "sends", 64)
	for _, c := range []struct {
		what    guest.Pair
		printed string
		value   string
		want    float64
	}{
		{rate, printedRate, vRate, 0.064321},
		{lat, printedLatency, suite.P50, 56200},
		{fab, printedFabric, vMean, 110310},
		{own, "ops=64 p50_ns=5 wall_ns=640\n", vMean, 10},
		{own, "ops=64 p50_ns=5 wall_ns=640\n", vRate, 100},
		{own, "ops=64 p50_ns=5 wall_ns=640\n", suite.P50, 5},
	} {
		if v, err := c.what.Read(c.printed); err != nil || v[c.value] != c.want {
			t.Errorf("%s: %v, %v; want %s=%g", c.what.Call[0], v, err, c.value, c.want)
		}
	}
	for _, p := range []guest.Pair{rate, lat, fab} {
		for _, nothing := range []string{"", "Couldn't connect to 10.77.0.2:7\n", " 8 1 x x x x x x\n", " 8 1 inf inf inf inf inf inf\n", " 64 20000 0.50 0.49 0.064 1 1\n", " 8 20000 0 0 0 0 0\n"} {
			if v, err := p.Read(nothing); err == nil {
				t.Errorf("%s: %q gave %v", p.Call[0], nothing, v)
			}
		}
	}
	// The server gets its own device and no address, the client both.
	if s := strings.Join(rate.Server, " "); s != "ib_write_bw -d rxe1 -x 2 -p 7 -s 8 -F -n 64" {
		t.Errorf("who waits: %s", s)
	}
	if s := strings.Join(rate.Call, " "); s != "ib_write_bw -d rxe0 -x 1 -p 7 -s 8 -F -n 64 10.77.0.2" {
		t.Errorf("who calls: %s", s)
	}
	if !slices.Contains(own.Server, "10.77.0.2:7") || !slices.Contains(own.Call, "-dial") || own.Port != 0 {
		t.Errorf("ours: %q and %q", own.Server, own.Call)
	}
}
