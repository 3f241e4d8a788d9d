//go:build !amd64 && !(linux && arm64)

package writeback

const lineSize = uintptr(64)

func supported(Instruction) bool { return false }

func persist(_ Instruction, _, end, _ uintptr) uintptr { return end }
