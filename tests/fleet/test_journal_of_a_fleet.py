"""What a fleet notices reaches the user at once, also what came before anybody listened."""

from fedmux.fleet.journal import Journal


def test_notices_wait_for_a_listener_and_then_reach_it_at_once():
    journal, heard = Journal(), []
    journal.notice("first")
    journal.listen(heard.append)
    assert heard == ["first"] and journal.notices == []
    journal.notice("second")
    assert heard == ["first", "second"]
