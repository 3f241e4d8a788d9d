// Package rounds runs the sides of a comparison in turn, round after round, so
// that what changes on the machine meanwhile changes for all of them, and takes
// the median of what they found.
//
//	all, err := rounds.Alternate(ctx, 9, ours, baseline)
//	per := all.Series(func(r rounds.Round) float64 { return r["ours"]["cpu"] / r["ours"]["ops"] })
//	fmt.Println(per.Median())
package rounds
