//go:build !linux

package mixed

import "errors"

// Lay fails: there is no Soft-RoCE.
func Lay() error { return errors.ErrUnsupported }

// Within fails: there are no name spaces.
func Within(func() error) error { return errors.ErrUnsupported }
