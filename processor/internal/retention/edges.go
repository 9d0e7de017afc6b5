package retention

import "slices"

// edge is an instant at which a file of the server was ended: all messages up to a sequence are in files
// of before.
type edge struct {
	At  int64  `json:"at"` // Unix milliseconds, before the filling
	Seq uint64 `json:"seq"`
}

// mostEdges is how many edges are remembered: those of the events have to reach back as long as events are
// kept.
const mostEdges = 32

// edges are those of a stream, oldest first.
type edges []edge

// last is the newest edge; zero if there is none.
func (e edges) last() edge {
	if len(e) == 0 {
		return edge{}
	}
	return e[len(e)-1]
}

// add adds an edge, and forgets the oldest one.
func (e edges) add(next edge) edges {
	e = append(slices.Clone(e), next)
	return e[max(0, len(e)-mostEdges):]
}

// upTo is the instant of the newest edge up to a sequence: the files have nothing that was stored
// before it, once all messages up to there are removed. It is since if there is none.
func (e edges) upTo(seq uint64, since int64) int64 {
	for _, one := range slices.Backward(e) {
		if one.Seq <= seq {
			return max(one.At, since)
		}
	}
	return since
}

// before is the instant of the newest edge that is not after another instant.
func (e edges) before(at, since int64) int64 {
	for _, one := range slices.Backward(e) {
		if one.At <= at {
			return max(one.At, since)
		}
	}
	return since
}

// behind is the instant of the newest edge that is not after another instant, and that lies before the oldest message
// of the stream: all files of before it are gone.
func (e edges) behind(at int64, oldest uint64, since int64) int64 {
	for _, one := range slices.Backward(e) {
		if one.At <= at && one.Seq < oldest {
			return max(one.At, since)
		}
	}
	return since
}
