package suite

import "sync"

// Spread has goroutines call do n times in all, each the same number of times as far as possible. It blocks until all
// have ended, and returns the first error; a goroutine ends with its own. do is called by all of them at the same time.
func Spread(goroutines, n int, do func() error) error {
	var all sync.WaitGroup
	errs := make(chan error, goroutines)
	for i := range goroutines {
		mine := n / goroutines
		if i == 0 {
			mine += n % goroutines
		}
		all.Go(func() {
			for range mine {
				if err := do(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
