package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// confirm asks for consent, unless yes is true. Any answer but yes is an error that says what was declined. The end of ctx is the same
// error, at once. Without a terminal the error names --yes and the alternative.
func (a *app) confirm(ctx context.Context, yes bool, question, instead, declined string) error {
	switch {
	case yes:
		return nil
	case !a.asks:
		return wrongUsage("there is no terminal to ask on: give --yes to %s; %s", question, instead)
	}
	fmt.Fprint(a.err, question+"? [y/N] ")
	type reply struct {
		text string
		err  error
	}
	// A read from a terminal cannot be interrupted. It is abandoned; the process ends soon.
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
