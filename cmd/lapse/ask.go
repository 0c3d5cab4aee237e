package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// confirm asks a person, unless yes says that nobody needs to be asked. Any answer but yes is an error that says what was
// declined, and so is the end of ctx, at once; so is that there is nobody to ask, with what else can be done.
func (a *app) confirm(ctx context.Context, yes bool, question, instead, declined string) error {
	switch {
	case yes:
		return nil
	case !a.asks:
		return wrongUsage("there is nobody to ask: give --yes to %s; %s", question, instead)
	}
	fmt.Fprint(a.err, question+"? [y/N] ")
	type reply struct {
		text string
		err  error
	}
	// A read from a terminal cannot be interrupted: it goes on until the process ends, which it is about to.
	in, replies := bufio.NewReader(a.in), make(chan reply, 1)
	go func() {
		text, err := in.ReadString('\n')
		replies <- reply{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return errors.New("no answer: " + declined)
	case answer := <-replies:
		if answer.err != nil {
			return fmt.Errorf("read the answer: %w", answer.err)
		}
		switch strings.ToLower(strings.TrimSpace(answer.text)) {
		case "y", "yes":
			return nil
		}
		return errors.New(declined)
	}
}
