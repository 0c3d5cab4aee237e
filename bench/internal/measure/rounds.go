package measure

import "fmt"

// Samples are what was measured of each way, one sample a round.
type Samples[S fmt.Stringer] map[string][]S

// Rounds takes a sample of each way in each round, after some rounds that do not count. The ways change places from round to round.
func Rounds[S fmt.Stringer](o *Options, warming int, ways []string, take func(way string) (S, error)) (Samples[S], error) {
	samples := Samples[S]{}
	for round := range warming + o.Rounds {
		if err := samples.Round(o, round-warming+1, InTurn(ways, round), take); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// Round takes a sample of each way. Those of rounds below the first do not count.
func (s Samples[S]) Round(o *Options, round int, ways []string, take func(way string) (S, error)) error {
	for _, way := range ways {
		got, err := take(way)
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		o.Say("  round %d, %s: %s", round, way, got)
		if round > 0 {
			s[way] = append(s[way], got)
		}
	}
	return nil
}

// InTurn are the ways in the order of a round.
func InTurn(ways []string, round int) []string {
	var order []string
	for i := range ways {
		order = append(order, ways[(i+round)%len(ways)])
	}
	return order
}
