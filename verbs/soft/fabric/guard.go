package fabric

// Guard is a [Holder] whose memory its owner may take back while packets refer to it. A receiver of
// this process enters before it reads the payload, and leaves afterwards. Both may be called from any
// goroutine and do not block.
type Guard interface {
	Holder
	// Enter begins reading. It returns false if the memory was taken back: the packet must be dropped.
	Enter() bool
	// Leave ends what a successful Enter began. The owner waits for it: soon, and without waiting.
	Leave()
}
