package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

const (
	passedBytes = 1 << 20 // in the bodies of the documents that are passed at once
	// Beside traffic, making takes a tenth of the owner's time at most; but it goes on once a second, however long that
	// took.
	restMaking = 9
	makeEvery  = time.Second
)

// passedAtOnce is how many documents are passed at once for the property indexes that are being made. A test changes
// it.
var passedAtOnce = 500

// makeIndexes passes some documents for the property indexes that are being made, and commits their entries. The place
// up to which documents were passed is in the state: so a takeover goes on there. Beside traffic, and while a document
// is due, it rests most of the time.
func (p *Owner) makeIndexes(ctx context.Context, busy bool) (worked bool, err error) {
	if p.collections.IndexesMade() == 0 {
		p.Status.makes(nil)
		return false, nil
	}
	busy = busy || p.firstDue() <= p.logClock()+lookUpAgain
	if (busy || p.duties.full) && p.makeIn() > 0 {
		return false, nil
	}
	began := time.Now()
	name, m := p.collections.ToMake()
	found, err := p.pass(ctx, name, m)
	if err != nil {
		return false, err
	}
	err = p.commit(ctx, p.progress.Here(), nil, []store.CollectionChanges{p.collections.Pass(name, m, found)})
	p.duties.made, p.duties.making = time.Now(), time.Since(began)
	if p.duties.full = errors.Is(err, store.ErrFull); p.duties.full {
		p.Status.makes(fmt.Errorf("property indexes of collection %s are not made further, because Redis is full: %w",
			fold.CollectionName(name), err))
		return false, nil // nothing was committed
	}
	if err != nil {
		return false, err
	}
	p.Status.makes(nil)
	return true, p.Hook.At(crash.AfterMade)
}

// makeIn is how long making rests, beside traffic or while Redis is full.
func (p *Owner) makeIn() time.Duration {
	rest := makeEvery
	if !p.duties.full {
		rest = min(restMaking*p.duties.making, makeEvery)
	}
	return rest - time.Since(p.duties.made)
}

// pass reads the next documents of a collection that are to be passed.
func (p *Owner) pass(ctx context.Context, name string, m store.Making) ([]store.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (documents of a property index)")()
	began := time.Now()
	found, err := p.Store.Between(ctx, p.progress.Version, name, fold.ToPass(m), passedAtOnce, passedBytes)
	if err != nil {
		return nil, err
	}
	p.tenure.verified = began
	return found, p.Hook.At(crash.AfterPass)
}
