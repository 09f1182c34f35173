"""How all commands print."""

from rich.console import Console

from tacit.cli.terminal.output import break_command, plain_table


def test_a_heading_is_not_wrapped_at_the_width_of_the_columns_below_it():
    heading = "a heading that is wider than the one narrow column of its table"
    table = plain_table(heading)
    table.add_column("n")
    table.add_row("1")
    screen = Console(width=80)
    with screen.capture() as shown:
        screen.print(table)
    assert [line.strip() for line in shown.get().splitlines()] == [heading, "n", "─", "1"]


def test_a_command_is_broken_before_options_so_that_a_shell_reads_it_whole():
    command = "tacit train --epsilon 8 --delta 0.001 --lot-size 24 --rounds 4 --lr 2.0 --lr-final 0.4"
    lines = break_command(command, 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert len(lines) > 2
    assert break_command(command, 40).replace("\\\n", " ").split() == command.split()
    assert break_command(command, 200) == command
