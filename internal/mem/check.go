package mem

import "fmt"

// part is a range of an adopted arena, and what the system's list of mappings says of it.
type part struct {
	start, end uint64
	writable   bool
	file       bool // it may reach beyond the end of its file
}

// Check returns an error if a device could not read the n bytes at addr, which are in the arena, or,
// with write, not write them. It answers for the moment: memory of others can change later, see
// [Arena.MayFault].
//
// The permissions are those at the time of Adopt. With present the pages must also be there, as for a
// device that pins them: a mapping may be longer than its file. For that Check reads the last byte of
// each mapping of a file. Where the system does not list the mappings, Check has no permissions, and with present it reads a
// byte of each page instead, and with write also writes one word of each, unchanged.
//
// Errors: [ErrNotWritable]; [ErrNotMapped].
func (a *Arena) Check(addr uint64, n int, write, present bool) error {
	b, ok := a.Slice(addr, n)
	if !ok {
		return fmt.Errorf("%w: %d bytes at %#x", ErrUnmapped, n, addr)
	}
	if a.owned {
		return nil
	}
	if a.parts == nil {
		switch {
		case present && !Readable(b):
			return fmt.Errorf("%w: %d bytes at %#x have pages that cannot be read", ErrNotMapped, n, addr)
		case present && write && !writable(b):
			return fmt.Errorf("%w: %d bytes at %#x", ErrNotWritable, n, addr)
		}
		return nil
	}
	for _, p := range a.parts {
		from, to := max(p.start, addr), min(p.end, addr+uint64(n))
		switch {
		case from >= to:
		case write && !p.writable:
			return fmt.Errorf("%w: %d bytes at %#x, from %#x on", ErrNotWritable, n, addr, from)
		case present && p.file && !Readable(b[to-1-addr:to-addr]):
			return fmt.Errorf("%w: %d bytes at %#x reach beyond the end of a file, which ends before %#x", ErrNotMapped, n, addr, to)
		}
	}
	return nil
}
