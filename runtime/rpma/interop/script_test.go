package interop

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/runtime/rpma"
	"github.com/verbena-rdma/verbena/verbs"
)

// The memory of each end, as in testdata/peer.h.
const (
	size                            = 4096
	written, writtenLen             = 0, 64   // filled by the peer's write
	atomicWord, atomicLen           = 64, 8   // by its atomic write
	noticed, noticedLen             = 128, 16 // by its write with a number
	exposedLen                      = 192     // nothing beyond is the peer's to write
	readable, readableLen           = 1024, 32
	fetched                         = 1088
	sources, inbox, place           = 2048, 3072, 64 // of operations and of messages, place bytes each
	messageLen, messages            = 24, 3
	describedSize                   = rpma.MRSize + rpma.PeerConfigSize
	noticeNumber, sendNumber uint32 = 0x01020304, 0xa1b2c3d4
)

// Operations: the words of their completions, and the seeds of their data.
const (
	opWrite = 1 + iota
	opFlush
	opPersistent
	opAtomic
	opFlushWord
	opRead
	opNotice
	opSend
	opSendImm
	opBye
	opRecv = 100
)

// dataOf returns the data of an operation of one of the ends.
func dataOf(n, seed int, passive bool) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + 7*i + 31*seed)
		if passive {
			b[i] += 101
		}
	}
	return b
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// arrival is what arrives for an operation of an end that drives.
type arrival struct {
	opcode  verbs.WCOpcode
	bytes   int
	imm     string // as testdata/peer.h prints it
	message []byte
}

// arrivals returns what arrives from an end that drives, in order.
func arrivals(passive bool) []arrival {
	return []arrival{
		{verbs.WCRecvRDMAWithImm, noticedLen, fmt.Sprintf("%08x ", noticeNumber), nil},
		{verbs.WCRecv, messageLen, "", dataOf(messageLen, opSend, passive)},
		{verbs.WCRecv, messageLen, fmt.Sprintf("%08x ", sendNumber), dataOf(messageLen, opSendImm, passive)},
	}
}

// exposed returns what the memory has when the other end has driven.
func exposed(passive bool) []byte {
	b := make([]byte, exposedLen)
	copy(b[written:], dataOf(writtenLen, opWrite, passive))
	copy(b[atomicWord:], dataOf(atomicLen, opAtomic, passive))
	copy(b[noticed:], dataOf(noticedLen, opNotice, passive))
	return b
}

// persistent reports whether an end that has been told of a configuration can flush memory persistently.
func persistent(flushes rpma.Usage, cfg rpma.PeerConfig) bool {
	return flushes&rpma.FlushPersistent != 0 && cfg.DirectWriteToPMem
}

// transcript returns the output of the program, which is the other end.
func (e *end) transcript() []string {
	own := rpma.PeerConfig{DirectWriteToPMem: e.passive}
	direct := 0
	if own.DirectWriteToPMem {
		direct = 1
	}
	flushes := e.mr.Usage() & (rpma.FlushVisibility | rpma.FlushPersistent)
	start := []string{
		"device " + e.b.theirs.name, "described " + hexOf(e.private), "event Connection established", "learned " + hexOf(e.own),
		fmt.Sprintf("remote %d %d %d", size, flushes, direct), "configuration " + hexOf(e.own[rpma.MRSize:]),
	}
	done := func(op int) string { return fmt.Sprintf("done %d %d", op, verbs.WCSuccess) }
	refused := fmt.Sprintf("persistent %d", rpma.ErrNotSupported)
	drive := []string{done(opFlush), refused}
	if persistent(flushes, own) {
		drive = append(drive, "persistent 0", done(opPersistent))
	} else {
		drive = append(drive, refused)
	}
	drive = append(drive, done(opAtomic), done(opFlushWord), done(opRead), "read "+hexOf(dataOf(readableLen, opRead, e.passive)),
		done(opNotice), done(opSend), done(opSendImm))
	var answer []string
	for _, a := range arrivals(e.passive) {
		answer = append(answer, fmt.Sprintf("arrival %d %d %d %smessage %s", verbs.WCSuccess, a.opcode, a.bytes, a.imm, hexOf(a.message)))
	}
	answer = append(answer, "memory "+hexOf(exposed(e.passive)))
	var last []string
	if e.b.order == first {
		last = []string{fmt.Sprintf("arrival %d %d 0 message ", verbs.WCSuccess, verbs.WCRecv)}
	}
	last = append(last, "event Connection closed", "end")
	if e.passive { // the program is active, and drives first
		return slices.Concat(start, drive, answer, last)
	}
	return slices.Concat(start, answer, drive, last)
}

// compare checks the output of the program.
func (e *end) compare(got []string) {
	e.b.Helper()
	want := e.transcript()
	for i := range max(len(got), len(want)) {
		if g, w := line(got, i), line(want, i); g != w {
			e.b.Fatalf("line %d of the program is\n%q, want\n%q", i+1, g, w)
		}
	}
}

// line returns a line, or the empty string behind the last one.
func line(of []string, i int) string {
	if i < len(of) {
		return of[i]
	}
	return ""
}
