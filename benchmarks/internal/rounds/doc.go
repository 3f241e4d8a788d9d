// Package rounds runs the sides of a comparison alternately, round after round, so that changes
// on the machine affect all of them, and takes the median of their results.
//
//	all, err := rounds.Alternate(ctx, 9, ours, baseline)
//	per := all.Series(func(r rounds.Round) float64 { return r["ours"]["cpu"] / r["ours"]["ops"] })
//	fmt.Println(per.Median())
package rounds
